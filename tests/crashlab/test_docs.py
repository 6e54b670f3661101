"""Every command of docs/crashlab.md is executed, and prints what the page shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pwf.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "crashlab.md"
FILES = dict(re.findall(r"<!-- file (\S+) -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL))
COMMANDS = [
    (int(code), command, shown)
    for code, command, shown in re.findall(
        r"<!-- exit (\d+) -->\n```console\n\$ pwf (.*?)\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
]


@pytest.mark.parametrize(
    ("code", "command", "shown"),
    [
        pytest.param(*one, id=one[1], marks=() if first else pytest.mark.rest)
        for first, one in ((one is COMMANDS[0], one) for one in COMMANDS)
    ],
)
def test_a_command_of_the_page_prints_what_the_page_shows(
    code: int,
    command: str,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".pwf").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PWF_HOME", str(tmp_path / "home"))
    assert main(shlex.split(command)) == code
    assert re.sub(r"in [\d.]+ s$", "in N s", capsys.readouterr().out, flags=re.MULTILINE) == shown


def test_every_example_of_the_page_is_used() -> None:
    text = PAGE.read_text()
    assert text.count("```python") == len(FILES)
    assert text.count("```console") == len(COMMANDS)
    assert all(any(name in command for _, command, _ in COMMANDS) for name in FILES)
