"""The configuration file, `config.toml`: read by the daemon at start, and by clients for what they pass on.

Every key is optional. A file that can not be read, is not TOML, or holds an unknown key, a wrong type or a
number out of bounds is refused whole with a `ConfigError` that names key, file and line. Nothing here
writes the file.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated

import msgspec

from pwf.errors import ConfigError

MIB = 1024 * 1024
CONFIG_BYTES_MAX = 256 * 1024

Seconds = Annotated[float, msgspec.Meta(ge=0, le=3_600)]
Variable = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*\*?$")]


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings, with their defaults and bounds (docs/operations.md lists them).

    Names end in their unit. `environment` names variables that a client passes on besides the allow-list.
    """

    max_runners: Annotated[int, msgspec.Meta(ge=1, le=256)] = 4
    drain_s: Seconds = 10.0
    lease_s: Annotated[float, msgspec.Meta(ge=2, le=3_600)] = 30.0
    lease_renew_s: Annotated[float, msgspec.Meta(ge=0.5, le=1_200)] = 10.0
    stop_grace_s: Annotated[float, msgspec.Meta(ge=0.1, le=60)] = 1.0  # SIGTERM to SIGKILL
    interpreter: str | None = None
    environment: tuple[Variable, ...] = ()
    max_value_bytes: Annotated[int, msgspec.Meta(ge=64 * 1024, le=1024 * MIB)] = 64 * MIB
    max_output_bytes: Annotated[int, msgspec.Meta(ge=1024, le=256 * MIB)] = 4 * MIB  # stdout and stderr, each
    runner_memory_bytes: Annotated[int, msgspec.Meta(ge=64 * MIB)] | None = None
    template_idle_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 600.0
    zygote_idle_s: Annotated[float, msgspec.Meta(ge=1, le=86_400)] = 1_800.0
    max_templates: Annotated[int, msgspec.Meta(ge=1, le=64)] = 8
    retention_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = 30  # 0 keeps everything
    max_state_size: Annotated[int, msgspec.Meta(ge=16 * MIB)] | None = None  # bytes; then nothing starts


def load_config(path: Path) -> Config:
    """Read the file; the defaults when there is none. Raises `ConfigError`."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Config()
    except OSError as error:
        raise ConfigError(
            f"{path} can not be read: {error.strerror}", hint=f"check its permissions: ls -l {path}"
        ) from error
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError(f"{path} has {len(data):,} bytes; the limit is {CONFIG_BYTES_MAX:,}")
    return parse_config(data, str(path))


def parse_config(data: bytes, file: str) -> Config:
    """Check the text of a configuration file. Raises `ConfigError` naming key, file and line."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{file}:{line}: the file is not UTF-8", hint="save it as UTF-8") from error
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        raise ConfigError(f"{file}:{line}: not TOML: {error}", hint="fix that line") from error
    try:
        config = msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        raise _fault(str(error), values, text, file) from error
    return _check_together(config, text, file)


def _check_together(config: Config, text: str, file: str) -> Config:
    if config.lease_renew_s * 2 > config.lease_s:
        key = "lease_renew_s" if _line_of("lease_renew_s", text) else "lease_s"
        raise ConfigError(
            f"{file}:{_line_of(key, text)}: lease_renew_s is {config.lease_renew_s:g}, more than half of "
            f"lease_s ({config.lease_s:g}): one missed renewal would lose the lease",
            hint=f"set lease_renew_s to {config.lease_s / 3:g} or less, or lease_s to "
            f"{config.lease_renew_s * 3:g} or more",
        )
    if config.interpreter is not None and not config.interpreter.startswith(("/", "~")):
        raise ConfigError(
            f"{file}:{_line_of('interpreter', text)}: interpreter is {config.interpreter!r}, which is not an "
            "absolute path",
            hint='write the whole path, for example interpreter = "/usr/bin/python3"',
        )
    return config


def _fault(message: str, values: dict[str, object], text: str, file: str) -> ConfigError:
    """Turn msgspec's text into one with key, file and line."""
    unknown = re.search(r"unknown field `([^`]*)`", message)
    if unknown:
        key = unknown[1]
        import difflib  # only needed to word an error

        near = difflib.get_close_matches(key, Config.__struct_fields__, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "known keys: " + ", ".join(Config.__struct_fields__)
        return ConfigError(f"{file}:{_line_of(key, text)}: there is no key {key!r}", hint=hint)
    path = re.search(r"at `\$\.([A-Za-z0-9_]+)", message)
    key = path[1] if path else ""
    wanted = message.split(" - at ")[0]
    wanted = wanted[:1].lower() + wanted[1:]
    return ConfigError(
        f"{file}:{_line_of(key, text)}: {key} is {_shown(values.get(key))}: {wanted}",
        hint=f"change or remove {key}",
    )


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _line_of(key: str, text: str) -> int:
    """The line that sets a top-level key, or opens a table of that name; 0 when none does."""
    name = re.escape(key)
    quoted = rf"(?:{name}|\"{name}\"|'{name}')"
    pattern = re.compile(rf"\s*(?:{quoted}\s*[.=]|\[+\s*{quoted}\s*[\].])")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return number
    return 0
