"""Where the value of a secret comes from, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pwf import secrets
from pwf.errors import ConfigError, PwfError, SecretMissing
from pwf.secrets import resolve, without_source

CANARY = "canary-7f3a-value"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir(mode=0o700)
    return tmp_path / "config" / "config.toml"


def kept(path: Path, value: str = CANARY + "\n", mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value)
    path.chmod(mode)
    return path


def test_without_a_word_in_the_configuration_it_is_a_file_beside_that(config: Path) -> None:
    assert without_source(["TOKEN"], config) == ("TOKEN",)
    with pytest.raises(SecretMissing, match="has no source") as caught:
        resolve("TOKEN", config)
    assert caught.value.hint is not None
    assert f"install -D -m 600 /dev/stdin {config.parent}/secrets/TOKEN" in caught.value.hint

    kept(config.parent / "secrets" / "TOKEN")

    assert without_source(["TOKEN"], config) == ()
    assert resolve("TOKEN", config) == CANARY


def test_a_file_that_others_may_read_is_refused_with_the_command_that_mends_it(config: Path) -> None:
    path = kept(config.parent / "token", mode=0o640)
    config.write_text(f'[secrets.TOKEN]\nfile = "{path}"\n')
    with pytest.raises(SecretMissing, match="others may read") as caught:
        resolve("TOKEN", config)
    assert caught.value.hint == f"chmod 600 {path}"
    assert CANARY not in str(caught.value)


def test_a_variable_is_read_from_the_environment_of_whoever_asks(config: Path) -> None:
    config.write_text('[secrets.TOKEN]\nenvironment = "CI_TOKEN"\n')
    assert resolve("TOKEN", config, {"CI_TOKEN": CANARY}) == CANARY
    with pytest.raises(SecretMissing, match="variable CI_TOKEN") as caught:
        resolve("TOKEN", config, {})
    assert "EnvironmentFile=" in (caught.value.hint or "")


def test_a_command_prints_the_value_and_nothing_that_it_says_is_told_on(config: Path) -> None:
    config.write_text(
        f'[secrets.TOKEN]\ncommand = ["printf", "{CANARY}"]\n'
        f'[secrets.BAD]\ncommand = ["sh", "-c", "echo {CANARY}; echo {CANARY} >&2; exit 3"]\n'
        '[secrets.GONE]\ncommand = ["no-such-program"]\n'
    )
    assert resolve("TOKEN", config) == CANARY
    with pytest.raises(SecretMissing, match="ended with 3") as bad:
        resolve("BAD", config)
    assert CANARY not in bad.value.message
    with pytest.raises(SecretMissing, match="can not be started"):
        resolve("GONE", config)


def test_a_command_that_prints_without_end_is_ended_when_it_is_too_much(config: Path) -> None:
    config.write_text('[secrets.TOKEN]\ncommand = ["yes"]\n')
    with pytest.raises(SecretMissing, match="more than 65,536 bytes"):
        resolve("TOKEN", config)


def test_a_command_that_waits_is_given_up(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "COMMAND_S_MAX", 0.05)
    config.write_text('[secrets.TOKEN]\ncommand = ["sleep", "60"]\n')
    with pytest.raises(SecretMissing, match="took longer"):
        resolve("TOKEN", config)


def test_the_keyring_is_asked_for_the_service_and_the_secrets_name(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = kept(tmp_path / "bin" / "secret-tool", '#!/bin/sh\necho "asked for $*"\n', 0o755)
    config.write_text('[secrets.TOKEN]\nkeyring = "github"\n')
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    assert resolve("TOKEN", config) == "asked for lookup service github username TOKEN"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SecretMissing, match="secret-tool"):
        resolve("TOKEN", config)


@pytest.mark.parametrize(
    ("value", "said"),
    [("", "fewer than"), ("abc\n", "fewer than"), ("x" * 70_000, "more than"), ("\udcff", "no text")],
)
def test_a_value_that_could_not_be_taken_out_again_is_refused(config: Path, value: str, said: str) -> None:
    path = config.parent / "secrets" / "TOKEN"
    kept(path, "")
    path.write_bytes(value.encode(errors="surrogateescape"))
    with pytest.raises(SecretMissing, match=said):
        resolve("TOKEN", config)


@pytest.mark.parametrize("name", ["", "../token", ".hidden", "a/b", "x" * 200])
def test_a_name_is_no_path(config: Path, name: str) -> None:
    with pytest.raises(PwfError, match="no name of a secret"):
        resolve(name, config)


@pytest.mark.parametrize("text", ["", 'file = "/a"\nkeyring = "b"\n'])
def test_a_source_is_exactly_one(config: Path, text: str) -> None:
    config.write_text(f"[secrets.TOKEN]\n{text}")
    with pytest.raises(ConfigError, match="exactly one"):
        resolve("TOKEN", config)
