"""The entry that a host's configuration gets, and the token of HTTP."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from pwf.cli.mcp import HOSTS
from pwf.errors import ConfigError, Conflict, InvalidArgument
from pwf.mcp.http import token_at
from pwf.mcp.install import Entry, entry_for, written


def entry(host: str, folder: Path, grant: str = "worker") -> Entry:
    return entry_for(host, grant, folder / "project", {"HOME": str(folder), "PWF_HOME": str(folder / "home")})


def servers(found: Entry) -> Any:
    text = found.file.read_text()
    return tomllib.loads(text)["mcp_servers"] if found.section is None else json.loads(text)[found.section]


@pytest.mark.parametrize("host", HOSTS)
def test_an_entry_is_written_beside_what_is_there_and_once(host: str, tmp_path: Path) -> None:
    found = entry(host, tmp_path, "operator")
    found.file.parent.mkdir(parents=True, exist_ok=True)
    other = '{"mcpServers": {"o": {"command": "x"}}, "servers": {"o": {"command": "x"}}, "theme": "dark"}'
    found.file.write_text(other if found.section else '# mine\nmodel = "m"\n[mcp_servers.o]\ncommand = "x"\n')
    written(found)
    once = found.file.read_text()
    written(found)
    assert found.file.read_text() == once
    assert set(servers(found)) == {"o", "pwf"}
    ours = servers(found)["pwf"]
    assert ours["args"][4:7] == ["mcp", "serve", "--session"]
    assert ours["args"][-2:] == ["--grant", "operator"]
    assert ours["args"][:4] == ["-m", "pwf", "-C", str(tmp_path / "project")]
    assert ours["env"] == {"PWF_HOME": str(tmp_path / "home")}
    assert "dark" in once or "# mine" in once


def test_a_file_that_is_not_what_it_should_be_is_left_as_it_is(tmp_path: Path) -> None:
    found = entry("vscode", tmp_path)
    found.file.parent.mkdir(parents=True)
    for text in ('{"servers": {} // mine\n}', "[]", '{"servers": 3}'):
        found.file.write_text(text)
        with pytest.raises(InvalidArgument, match="left as it is"):
            written(found)
        assert found.file.read_text() == text


def test_another_entry_of_our_name_in_a_toml_file_is_kept(tmp_path: Path) -> None:
    found = entry("codex", tmp_path)
    found.file.parent.mkdir(parents=True)
    found.file.write_text('[mcp_servers.pwf]\ncommand = "mine"\n')
    with pytest.raises(Conflict, match="already"):
        written(found)
    assert "mine" in found.file.read_text()


def test_a_token_is_made_once_for_its_user_alone_and_one_that_others_can_read_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mcp.token"
    token = token_at(path)
    assert token_at(path) == token
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="read by others"):
        token_at(path)


def test_an_entry_names_the_same_session_whenever_it_is_made_and_another_for_each_host_and_project(
    tmp_path: Path,
) -> None:
    def session(host: str, project: str) -> str:
        args = entry_for(host, "worker", tmp_path / project, {"HOME": str(tmp_path)}).server["args"]
        return str(args[args.index("--session") + 1])

    assert session("cursor", "a") == session("cursor", "a")
    assert len({session(host, project) for host in HOSTS for project in "ab"}) == 2 * len(HOSTS)
