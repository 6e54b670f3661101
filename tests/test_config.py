"""A configuration file is taken whole or refused with key, file and line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec
import pytest

from pwf.config import Config, ProjectConfig, load_config, load_project_config, parse_as, parse_config
from pwf.errors import ConfigError


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    config = load_config(tmp_path / "config.toml")
    assert config == Config()
    assert (config.max_runners, config.lease_s, config.lease_renew_s, config.drain_s) == (4, 30, 10, 10)
    assert config.max_value_bytes == 64 * 1024 * 1024
    assert config.max_output_bytes == 4 * 1024 * 1024


def test_every_key_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        'max_runners = 2\ndrain_s = 3\nlease_s = 60.5\nlease_renew_s = 20\ninterpreter = "/usr/bin/python3"\n'
        "max_value_bytes = 1048576\nmax_output_bytes = 65536\n"
        "runner_memory_bytes = 268435456\ntemplate_idle_s = 5\nzygote_idle_s = 6\nmax_templates = 3\n"
        'stop_grace_s = 2\n[environment]\npass = ["AWS_PROFILE", "_X1"]\n'
    )
    config = load_config(path)
    assert config.max_runners == 2
    assert config.lease_s == 60.5
    assert config.environment.passed == ("AWS_PROFILE", "_X1")
    assert config.runner_memory_bytes == 268435456
    assert config.stop_grace_s == 2


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("# a\nmax_runners = 0\n", 2, "max_runners is 0: expected `int` >= 1"),
        ("max_runners = 1000\n", 1, "max_runners is 1000"),
        ('\n\nmax_runners = "four"\n', 3, "max_runners is 'four': expected `int`, got `str`"),
        ("max_runers = 4\n", 1, "there is no key 'max_runers'"),
        ("drain_s = 1\n\n[idle]\nx = 1\n", 3, "there is no section 'idle'"),
        ('[environment]\npass = ["A", "B C"]\n', 2, "pass in [environment] is"),
        ('environment = ["A"]\n', 1, "environment is ['A']"),
        ("drain_s = -1\n", 1, "drain_s is -1"),
        ("a = \n", 1, "not TOML"),
        ("drain_s = 1\ndrain_s = 2\n", 2, "not TOML"),
        ("lease_s = 10\nlease_renew_s = 9\n", 2, "lease_renew_s is 9"),
        ("\nlease_s = 10\n", 2, "lease_renew_s is 10"),
        ('interpreter = "python3"\n', 1, "not an absolute path"),
        ("drain_s = nan\n", 1, "drain_s is nan"),
        ("max_value_bytes = 1.5\n", 1, "max_value_bytes is 1.5"),
        ('"max_runners" = 0\n', 1, "max_runners is 0"),
        ('trusted_folders = [\n  "/a",\n]\n# max_runners = 4\nmax_runners = 0\n', 5, "max_runners is 0"),
        ('interpreter = """\nmax_runners = 9"""\nmax_runners = 0\n', 3, "max_runners is 0"),
        ('max_runners = 4\r\ntrusted_folders = [\r\n"/a",\r\n"b"]\r\n', 2, "trusted_folders is ['/a', 'b']"),
    ],
)
def test_a_mistake_is_refused_with_key_file_and_line(text: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text.encode(), "/x/config.toml")
    assert f"/x/config.toml:{line}:" in caught.value.message
    assert said in caught.value.message
    assert caught.value.hint


def test_a_projects_file_has_sections_of_its_own_and_none_of_the_daemons_keys(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[environment]\npass = ["CI"]\n')
    assert load_project_config(path, ()).environment.passed == ("CI",)
    path.write_text("max_runners = 2\n")
    with pytest.raises(ConfigError, match="there is no key 'max_runners'"):
        load_project_config(path, ())


def test_a_project_without_a_file_has_the_defaults(tmp_path: Path) -> None:
    assert load_project_config(tmp_path / "none.toml", ()) == ProjectConfig()


def test_a_misspelt_key_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(b"max_runers = 4\n", "c")
    assert caught.value.hint == "did you mean 'max_runners'?"


def test_text_that_is_not_utf8_is_refused_with_its_line() -> None:
    with pytest.raises(ConfigError, match="c:2: the file is not UTF-8"):
        parse_config(b"# ok\n# \xff\n", "c")


def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can not be read"):
        load_config(tmp_path)


def test_the_documentation_lists_every_key_and_no_other() -> None:
    text = (Path(__file__).parents[1] / "docs" / "operations.md").read_text(encoding="utf-8")
    table = text.partition("\n## Configuration\n")[2].partition("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", table, re.M)) == Config.__struct_fields__


# --- sections -------------------------------------------------------------------------------------------------

Name = Annotated[str, msgspec.Meta(pattern="^[a-z-]+$")]


class Quiet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hour_from: Annotated[int, msgspec.Meta(ge=0, le=23)] = 22
    days: dict[str, bool] = {}


class People(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    may_answer: bool = False
    quiet: Quiet = Quiet()


class Agent(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    command: tuple[str, ...]
    tries: Annotated[int, msgspec.Meta(ge=1)] = 1


class Sections(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file with sections: one of a kind, one that may be missing, and many by name."""

    max_runners: int = 4
    people: People = People()
    quiet: Quiet | None = None
    agents: dict[Name, Agent] = {}


GOOD = """max_runners = 2

[people]
may_answer = true
quiet.hour_from = 20

[agents.claude]
command = ["claude", "-p"]

[agents."one-more"]
command = [
  "one",
]
tries = 3
"""


def test_a_section_is_a_struct_and_its_entries_are_found_by_name() -> None:
    read = parse_as(Sections, GOOD, "c")
    assert read.people == People(may_answer=True, quiet=Quiet(hour_from=20))
    assert read.agents["one-more"] == Agent(command=("one",), tries=3)
    assert read.quiet is None


@pytest.mark.parametrize(
    ("text", "line", "said", "hint"),
    [
        (
            GOOD.replace("tries = 3", "tries = 0"),
            14,
            "tries in [agents.one-more] is 0: expected",
            "remove tries",
        ),
        (GOOD.replace("tries", "trys"), 14, "there is no key 'trys' in [agents.one-more]", "mean 'tries'?"),
        (GOOD.replace('"one",', "1,"), 11, "command in [agents.one-more] is [1]: expected `str`", "command"),
        (GOOD + "[agents.third]\n\ntries = 1\n", 15, "[agents.third] has no command", "add command"),
        (GOOD + "[agents.Bad]\ncommand = []\n", 15, "Bad in [agents] has a name that is not allowed", "Bad"),
        (GOOD + "[people.noisy]\n", 15, "there is no section 'noisy' in [people]", "may_answer, quiet"),
        (GOOD + "[agnets.x]\n", 15, "there is no section 'agnets'", "did you mean 'agents'?"),
        (
            GOOD.replace("from = 20", "from = 24"),
            5,
            "hour_from in [people.quiet] is 24: expected",
            "hour_from",
        ),
        (GOOD.replace("hour_from", "hour"), 5, "there is no key 'hour' in [people.quiet]", "'hour_from'?"),
        (GOOD + "[quiet]\nhour = 2\n", 16, "there is no key 'hour' in [quiet]", "did you mean 'hour_from'?"),
        (GOOD + "[quiet.days]\nmonday = true\nfriday = 1\n", 17, "friday in [quiet.days] is 1", "friday"),
        ("agents = { a = { command = [], tries = 0 } }\n", 1, "tries in [agents.a] is 0", "tries"),
        ("agents.a.command = []\nagents.a.tries = 0\n", 2, "tries in [agents.a] is 0", "tries"),
        ("agents = [\n[1],\n[2]]\n", 1, "agents is [[1], [2]]: expected `object`", "agents"),
        ("max_runners = 1\nagents = 3\n", 2, "agents is 3: expected `object`", "agents"),
        ("[[agents]]\ncommand = []\n", 1, "agents is [{'command': []}]: expected `object`", "agents"),
        ('a = 1\n["agents" . x]\n', 1, "there is no key 'a'", "known keys: max_runners"),
    ],
)
def test_a_mistake_in_a_section_is_refused_with_key_section_file_and_line(
    text: str, line: int, said: str, hint: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_as(Sections, text, "/x/config.toml")
    assert caught.value.message.startswith(f"/x/config.toml:{line}: "), caught.value.message
    assert said in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_linked_file_is_followed_where_nobody_else_can_change_what_it_leads_to(tmp_path: Path) -> None:
    kept = tmp_path / "dotfiles" / "pwf.toml"
    kept.parent.mkdir()
    kept.write_text("max_runners = 7\n")
    (tmp_path / "config.toml").symlink_to(kept)
    assert load_config(tmp_path / "config.toml").max_runners == 7
    kept.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=r"others can change what it says: .*dotfiles: everyone") as caught:
        load_config(tmp_path / "config.toml")
    assert "chmod go-w" in (caught.value.hint or "")


def test_a_file_that_others_can_write_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('interpreter = "/tmp/theirs"\n')
    path.chmod(0o666)
    with pytest.raises(ConfigError, match="not followed"):
        load_config(path)


def test_a_link_to_what_everyone_can_write_is_not_even_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="/dev/zero"):
        load_config(tmp_path / "config.toml")


def test_a_link_that_leads_nowhere_does_not_mean_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.toml").symlink_to(tmp_path / "gone.toml")
    with pytest.raises(ConfigError, match="leads nowhere"):
        load_config(tmp_path / "config.toml")


CHANNELS = """\
[channels.desk]
kind = "command"
command = ["x"]

[channels.chat]
kind = "telegram"
token = "bot"
chat = 1
users = [1]

[audiences.operator]
channels = ["desk", "chat"]
answers = ["chat", "terminal"]
"""


def test_channels_are_read_by_their_kind() -> None:
    config = parse_config(CHANNELS.encode(), "c.toml")
    assert [type(one).__name__ for one in config.channels.values()] == ["CommandChannel", "TelegramChannel"]
    assert config.audiences["operator"].answers == ("chat", "terminal")


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"telegram"', '"telegraph"', 6, "kind in [channels.chat] is 'telegraph'"),
        ("chat = 1", 'chat = "x"', 8, "chat in [channels.chat] is 'x'"),
        ("users = [1]", "user = [1]", 9, "there is no key 'user' in [channels.chat]"),
        ("users = [1]\n", "", 5, "[channels.chat] has no users"),
        ("channels.desk", "channels.web", 1, "a channel can not be called 'web'"),
        ('["desk", "chat"]', '["desk", "phone"]', 12, "channels in [audiences.operator] names 'phone'"),
        ('"chat", "terminal"', '"mail"', 13, "answers in [audiences.operator] names 'mail'"),
        ('"chat", "terminal"', '"desk"', 13, "names 'desk', through which nobody answers"),
        ('["desk", "chat"]', '["desk", "desk"]', 12, "channels in [audiences.operator] names 'desk' twice"),
    ],
)
def test_a_mistake_in_a_channel_is_named_with_its_line(old: str, new: str, line: int, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(CHANNELS.replace(old, new, 1).encode(), "c.toml")
    assert f"c.toml:{line}: " in caught.value.message
    assert said in caught.value.message


@pytest.mark.parametrize("kind", ['"telegraph"', "3", ""])
def test_a_kind_that_is_none_lists_the_kinds(kind: str) -> None:
    said = CHANNELS.replace('kind = "telegram"', f"kind = {kind}" if kind else "", 1)
    with pytest.raises(ConfigError) as caught:
        parse_config(said.encode(), "c.toml")
    assert "one of: command, webhook, ntfy, telegram, slack, email, mcp" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("section", "fine"),
    [
        ('kind = "webhook"\nurl = "https://x"\nsecret = "s"', False),
        ('kind = "webhook"\nurl = "https://x"\nsecret = "s"\nlisten = "127.0.0.1:1"', True),
        ('kind = "ntfy"\ntopic = "t"', False),
        ('kind = "ntfy"\ntopic = "t"\nreply_topic = "a"', True),
        ('kind = "mcp"\ntoken = "t"\nhosts = ["claude-code"]', True),
        ('kind = "email"\nhost = "h"\nsender = "a@b.c"\nto = ["a@b.c"]', False),
    ],
)
def test_the_answers_of_an_audience_name_only_what_people_answer_through(section: str, fine: bool) -> None:
    audience = '[audiences.operator]\nchannels = ["x"]\nanswers = ["x"]\n'
    said = f"[channels.x]\n{section}\n\n{audience}".encode()
    if fine:
        assert parse_config(said, "c.toml").audiences["operator"].answers == ("x",)
    else:
        with pytest.raises(ConfigError, match="through which nobody answers"):
            parse_config(said, "c.toml")


def test_kind_of_an_agent_is_its_adapter() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(b'[agents.coder]\nkind = "acp"\ncommand = ["x"]\n', "c")
    assert "there is no key 'kind' in [agents.coder]" in caught.value.message
    assert caught.value.hint == "did you mean 'adapter'?"
