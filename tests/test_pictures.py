"""The recorded pictures of docs/pictures: what they are made with, and that they are shown."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from examples.pictures import COLUMNS, Screen, drawn

ROOT = Path(__file__).parents[1]
PICTURES = sorted((ROOT / "docs" / "pictures").glob("*.svg"))
SAID = {
    "run": "answer> ship=yes",
    "ls": "WORKFLOW",
    "explain": "why:",
    "logs": "42 passed",
    "decide": "not on a Friday",
}


def lines(text: str) -> list[str]:
    screen = Screen()
    screen.write(text)
    return ["".join(char for char, _ in line) for line in screen.lines]


def test_what_is_drawn_again_stands_once() -> None:
    assert lines("one\r\ntwo\x1b[2K\x1b[1A\x1b[2K\rONE\r\nTWO\r\n") == ["ONE", "TWO", ""]


def test_colours_go_with_the_characters_and_hidden_cursors_with_nothing() -> None:
    screen = Screen()
    screen.write("\x1b[?25l\x1b[32mok\x1b[0m \x1b[2mdim\x1b[0m")
    assert [style for _, style in screen.lines[0]] == ["32", "32", "", "2", "2", "2"]


def test_a_picture_is_text_without_anything_from_elsewhere() -> None:
    screen = Screen()
    screen.write("\x1b[1ma<b & c\x1b[0m")
    svg = drawn('say "x"', screen.lines)
    root = ElementTree.fromstring(svg)
    assert "".join(root.itertext()).count("a<b & c") == 1
    assert svg.count("http") == 1  # the name of the format
    assert root.get("aria-label") == 'say "x"'


def test_every_command_that_the_pages_show_is_there() -> None:
    assert {path.stem for path in PICTURES} >= set(SAID)


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.stem)
def test_a_picture_says_what_it_is_for_fits_its_width_and_is_shown_on_a_page(path: Path) -> None:
    root = ElementTree.parse(path).getroot()
    texts = ["".join(line.itertext()) for line in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(SAID.get(path.stem, "") in text for text in texts)
    assert max(map(len, texts)) <= COLUMNS
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    assert any(f"pictures/{path.name}" in page.read_text("utf-8") for page in pages)
    assert "/tmp" not in path.read_text("utf-8")
