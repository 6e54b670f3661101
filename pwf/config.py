"""The configuration file, `config.toml`: read by the daemon at start, and by clients for what they pass on.

Every key is optional. A file that can not be read, is not TOML, or holds an unknown key, a wrong type or a
number out of bounds is refused whole with a `ConfigError` that names key, section, file and line. Nothing here
writes the file.

A section is a field of `Config` whose type is a struct of its own (`[NAME]`), or a dict of such structs
(`[NAME.ENTRY]`). Its struct is frozen and forbids unknown fields, as `Config` does. Nothing else is needed.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from shlex import quote
from typing import Annotated, Literal, TypeVar

import msgspec

from pwf.audiences import BUILT_IN_CHANNELS, audience_fault
from pwf.budgets import Budget
from pwf.config_faults import fault, line_of
from pwf.errors import ConfigError
from pwf.ownership import stranger_on_way

MIB = 1024 * 1024
CONFIG_BYTES_MAX = 256 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")
PERSON = "person"  # in place of an agent's name: none (pwf/protocol/agents.py)

C = TypeVar("C", bound=msgspec.Struct)
Seconds = Annotated[float, msgspec.Meta(ge=0, le=3_600)]
Folder = Annotated[str, msgspec.Meta(pattern=r"^[/~]")]  # absolute, or below a user's home
AgentName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_-]{0,63}$")]
ChannelName = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]
Url = Annotated[str, msgspec.Meta(pattern=r"^https?://[^\s/?#]+(/[^\s?#]*[^\s/?#])?$")]
Topic = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Address = Annotated[str, msgspec.Meta(pattern=r"^[^\s@<>,;:\"]+@[A-Za-z0-9.-]+$")]
SlackUser = Annotated[str, msgspec.Meta(pattern=r"^[UW][A-Z0-9]{1,31}$")]
AudienceName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
HostName = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Told = Literal["decide", "waiting", "held", "failed", "ended", "notice"]
Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")]


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Variables that a client passes on to its runs besides the allow-list. A name may end with `*`."""

    passed: tuple[Variable, ...] = msgspec.field(default=(), name="pass")


class SecretSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the value of a secret is: exactly one of these. `keyring` is the service under which it is stored there."""

    environment: Variable | None = None
    file: Folder | None = None
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] | None = None
    keyring: str | None = None


class People(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What counts as a person's word. `steps_may_answer`: that of a run's step counts for a checkpoint."""

    steps_may_answer: bool = False


class Agent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program that does agents' steps by itself, and how it is spoken to (docs/agents.md)."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    adapter: Literal["exec", "acp", "pi-rpc"] = "exec"
    account: AgentName | None = None  # whose usage limits it meets; several agents may have one
    on_limit: Literal["resume", "ask", "stop"] = "resume"
    budget: Budget = Budget()  # of each run
    day_budget: Budget = Budget()  # of all its runs, on a day


class Web(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer pages: where `pwf web` listens, and how others reach it. `serve`: the daemon keeps it running."""

    serve: bool = False
    host: str = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 7930
    public_url: Annotated[str, msgspec.Meta(pattern=r"^https?://[A-Za-z0-9.:\[\]-]+/?$")] | None = None

    @property
    def is_loopback(self) -> bool:
        """Whether it listens to this machine alone."""
        return self.host in LOOPBACK

    @property
    def urls(self) -> list[str]:
        """All under which the pages are reached; the one for links first."""
        names = ("127.0.0.1", "localhost", "[::1]")
        own = [f"http://{name}:{self.port}" for name in names]
        return own if self.public_url is None else [self.public_url.rstrip("/"), *own]

    @property
    def is_encrypted(self) -> bool:
        """Whether others reach the pages by https."""
        return self.public_url is not None and self.public_url.startswith("https://")

    def is_public_host(self, host: str) -> bool:
        """Whether a request came under the public name."""
        return self.public_url is not None and self.public_url.rstrip("/").partition("//")[2] == host.lower()

    def url(self, path: str) -> str:
        """What is sent to people."""
        return self.urls[0] + path


class _Channel(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag_field="kind",
    omit_defaults=True,
):
    """A way to reach people outside. `tells`: of what. An audience with a section of its own names its channels."""

    tells: tuple[Told, ...] = ("decide",)


class CommandChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="command"):
    """A program of the user's own, which gets what happened as JSON on stdin; it runs for `timeout_s` at most."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 30.0


class WebhookChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="webhook"):
    """Signed POSTs to `url`, and with `listen` signed answers back. `secret`: the name of the secret that signs."""

    url: Url
    secret: str
    listen: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.\-]+:\d{1,5}$")] | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 30.0


class NtfyChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ntfy"):
    """`token`: the name of the secret for a topic that needs one. `reply_topic`: where actions post answers."""

    topic: Topic
    server: Url = "https://ntfy.sh"
    token: str | None = None
    reply_topic: Topic | None = None
    priority: Annotated[int, msgspec.Meta(ge=1, le=5)] = 4


class TelegramChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="telegram"):
    """`token`: the name of the bot's secret. `users`: the ids of those who may decide in `chat`."""

    token: str
    chat: int
    users: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
    server: Url = "https://api.telegram.org"


class SlackChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="slack"):
    """`token`, `app_token`: the names of the secrets of bot and app. `users`: the ids of those who may decide."""

    token: str
    app_token: str
    channel: Annotated[str, msgspec.Meta(pattern=r"^[CDG][A-Z0-9]{1,31}$")]
    users: Annotated[tuple[SlackUser, ...], msgspec.Meta(min_length=1)]
    server: Url = "https://slack.com/api"


class MailChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="email"):
    """A letter to each of `to`. `password`: the name of the secret with which `user` signs in at the mail server."""

    host: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9.:-]+$")]
    port: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 587
    security: Literal["starttls", "tls", "none"] = "starttls"
    sender: Address
    to: Annotated[tuple[Address, ...], msgspec.Meta(min_length=1, max_length=20)]
    user: str | None = None
    password: str | None = None
    timeout_s: Annotated[float, msgspec.Meta(gt=0, le=300)] = 30.0


class McpChannel(_Channel, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="mcp"):
    """MCP hosts that ask their person by a form, for audiences that name this channel.

    `hosts`: as they name themselves. `token`: the name of the secret by which `pwf mcp` is known.
    """

    tells: tuple[Literal["decide"], ...] = ("decide",)
    token: str
    hosts: Annotated[tuple[HostName, ...], msgspec.Meta(min_length=1)]


Channel = (
    CommandChannel | WebhookChannel | NtfyChannel | TelegramChannel | SlackChannel | MailChannel | McpChannel
)


class Audience(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is meant by `audience=` of a decision.

    `channels`: where it is shown, in this order. `answers`: whose answers count (`terminal` is one); empty: all.
    `escalate_s`: between one channel and the next; none: in all at once. `quiet`: nothing new is shown, in local time.
    """

    channels: Annotated[tuple[ChannelName, ...], msgspec.Meta(min_length=1)]
    answers: tuple[ChannelName, ...] = ()
    escalate_s: Annotated[float, msgspec.Meta(ge=1, le=604_800)] | None = None
    remind_s: Annotated[float, msgspec.Meta(ge=60, le=604_800)] | None = None
    quiet: (
        Annotated[str, msgspec.Meta(pattern=r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$")] | None
    ) = None


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, with their defaults and bounds (docs/operations.md lists them).

    Names end in their unit.
    """

    max_runners: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4
    drain_s: Seconds = 10.0
    lease_s: Annotated[float, msgspec.Meta(ge=2, le=3_600)] = 30.0
    lease_renew_s: Annotated[float, msgspec.Meta(ge=0.5, le=1_200)] = 10.0
    stop_grace_s: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 1.0  # SIGTERM to SIGKILL
    interpreter: str | None = None
    trusted_folders: tuple[
        Folder, ...
    ] = ()  # others may change what lies in these, and it is executed all the same
    max_value_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024, le=1024 * MIB)] = 64 * MIB
    max_output_bytes: Annotated[int, msgspec.Meta(ge=1024, le=256 * MIB)] = 4 * MIB  # stdout and stderr, each
    runner_memory_bytes: Annotated[int, msgspec.Meta(ge=64 * MIB)] | None = None
    template_idle_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 600.0
    zygote_idle_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 1_800.0
    runs_per_process: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 50  # under isolate="keep"
    max_templates: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    retention_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = 30  # 0 keeps everything
    max_state_size: Annotated[int, msgspec.Meta(ge=16 * MIB)] | None = None  # bytes; then nothing starts
    people: People = People()
    web: Web = Web()
    environment: Environment = Environment()
    secrets: dict[str, SecretSource] = {}
    default_agent: str | None = None  # of runs that name none
    agents: dict[AgentName, Agent] = {}
    channels: dict[ChannelName, Channel] = {}
    audiences: dict[AudienceName, Audience] = {}

    @property
    def accounts(self) -> dict[str, str]:
        """By agent: whose usage limits it meets, its own where it names no account."""
        return {name: agent.account or name for name, agent in self.agents.items()}


class ProjectConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a project may say for all who work on it, in its `.pwf/config.toml`."""

    environment: Environment = Environment()


def load_config(path: Path) -> Config:
    """Read the file; the defaults when there is none. Raises `ConfigError`, also where others can change the file.

    A link is followed: what it leads to, and every folder on the way, must be the user's or root's alone to write.
    """
    data = _read(path)
    return Config() if data is None else parse_config(data, str(path))


def load_project_config(path: Path, trusted_folders: tuple[str, ...]) -> ProjectConfig:
    """The same for a project's file; folders that the user trusts count as the user's own."""
    data = _read(path, trusted_folders)
    return ProjectConfig() if data is None else parse_as(ProjectConfig, _decoded(data, str(path)), str(path))


def _read(path: Path, trusted_folders: tuple[str, ...] = ()) -> bytes | None:
    """The file's bytes; None where there is none."""
    try:
        stranger = stranger_on_way(path, trusted_folders)
        data = b"" if stranger is not None else path.read_bytes()
    except FileNotFoundError as error:
        if path.is_symlink():
            raise ConfigError(
                f"{path} is a link that leads nowhere", hint=f"ls -l {quote(str(path))}"
            ) from error
        return None
    except OSError as error:
        raise ConfigError(
            f"{path} can not be read: {error.strerror}", hint=f"check its permissions: ls -l {path}"
        ) from error
    if stranger is not None:
        raise ConfigError(
            f"{path} is not followed, since others can change what it says: {stranger.path}: {stranger.why}",
            hint=f"look at what it says; then chmod go-w {quote(str(stranger.path))}, or move the file to a folder "
            "of your own",
        )
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{path} has {len(data):,} bytes; the limit is {CONFIG_BYTES_MAX:,}")
    return data


def parse_config(data: bytes, file: str) -> Config:
    """Check the text of a configuration file. Raises `ConfigError` naming key, file and line."""
    text = _decoded(data, file)
    return _check_together(parse_as(Config, text, file), text, file)


def parse_as(shape: type[C], text: str, file: str) -> C:
    """The text as a struct, sections as the structs in it. Raises `ConfigError` naming key, section, file and line."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise ConfigError(f"{file}:{line}: not TOML: {error}", hint="fix that line") from error
    try:
        return msgspec.convert(values, shape)
    except msgspec.ValidationError as error:
        raise fault(str(error), shape, values, text, file) from error


def _decoded(data: bytes, file: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: the file is not UTF-8", hint="save it as UTF-8") from error


def _check_together(config: Config, text: str, file: str) -> Config:
    if config.lease_renew_s * 2 > config.lease_s:
        key = "lease_renew_s" if "lease_renew_s" in tomllib.loads(text) else "lease_s"
        raise ConfigError(
            f"{file}:{line_of((key,), text)}: lease_renew_s is {config.lease_renew_s:g}, more than half of "
            f"lease_s ({config.lease_s:g}): one missed renewal would lose the lease",
            hint=f"set lease_renew_s to {config.lease_s / 3:g} or less, or lease_s to "
            f"{config.lease_renew_s * 3:g} or more",
        )
    for name, source in config.secrets.items():
        given = [one for one in source.__struct_fields__ if getattr(source, one) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"{file}:{line_of(('secrets', name), text)}: [secrets.{name}] has "
                f"{' and '.join(given) or 'nothing'}: exactly one says where the value is",
                hint="environment, file, command or keyring",
            )
    if not config.web.is_loopback and config.web.public_url is None:
        raise ConfigError(
            f"{file}:{line_of(('web', 'host'), text)}: host in [web] is {config.web.host!r}, which others reach, and "
            "no public_url says under which name",
            hint='set public_url = "https://…", or leave host out',
        )
    if PERSON in config.agents:
        raise ConfigError(
            f"{file}:{line_of(('agents', PERSON), text)}: an agent can not be called {PERSON!r}, which is the word "
            "for none",
            hint="give it another name",
        )
    if config.default_agent is not None and config.default_agent not in (PERSON, *config.agents):
        raise ConfigError(
            f"{file}:{line_of(('default_agent',), text)}: default_agent is {config.default_agent!r}, which is not "
            "configured",
            hint=f"add [agents.{config.default_agent}], or name another: {', '.join((PERSON, *config.agents))}",
        )
    _check_channels(config, text, file)
    if config.interpreter is not None and not config.interpreter.startswith(("/", "~")):
        raise ConfigError(
            f"{file}:{line_of(('interpreter',), text)}: interpreter is {config.interpreter!r}, which is not an "
            "absolute path",
            hint='write the whole path, for example interpreter = "/usr/bin/python3"',
        )
    return config


def _check_channels(config: Config, text: str, file: str) -> None:
    """A name means one channel, and an audience names only channels that there are."""
    for name in BUILT_IN_CHANNELS:
        if name in config.channels:
            raise ConfigError(
                f"{file}:{line_of(('channels', name), text)}: a channel can not be called {name!r}, which is built in",
                hint="give it another name",
            )
    fault = audience_fault(config.channels, config.audiences, has_pages=config.web.public_url is not None)
    if fault is not None:
        line = line_of(("audiences", fault.audience, fault.key), text)
        raise ConfigError(
            f"{file}:{line}: {fault.key} in [audiences.{fault.audience}] names {fault.what}", hint=fault.hint
        )
