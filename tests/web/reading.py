"""Reads a page as a program for blind people would: its elements, what labels what, and what it would load."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise
from typing import NamedTuple

VOID = {"meta", "link", "input", "br"}


class Element(NamedTuple):
    tag: str
    attributes: dict[str, str]
    texts: list[str]

    @property
    def text(self) -> str:
        return "".join(self.texts).strip()


class Read(HTMLParser):
    """The elements of a page in order. Raises AssertionError where tags do not fit together."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(page)
        self.close()
        assert self._open == [], f"never closed: {[one.tag for one in self._open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs}, [])
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open[-1].tag == tag, f"</{tag}> closes <{self._open[-1].tag}>"
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.texts.append(data)

    def all(self, tag: str) -> list[Element]:
        return [one for one in self.elements if one.tag == tag]


def faults(page: str) -> list[str]:
    """What would keep somebody from using a page."""
    read = Read(page)
    found = []
    ids = [one.attributes["id"] for one in read.elements if "id" in one.attributes]
    labelled = {one.attributes.get("for") for one in read.all("label")}
    if read.all("html")[0].attributes.get("lang") != "en":
        found.append("no language")
    if len(read.all("h1")) != 1 or len(read.all("main")) != 1 or not read.all("title")[0].text:
        found.append("not one title, heading and main part")
    if len(ids) != len(set(ids)):
        found.append(f"ids are not unique: {ids}")
    if not any("width=device-width" in one.attributes.get("content", "") for one in read.all("meta")):
        found.append("not for a phone")
    for one in read.elements:
        kind = one.attributes.get("type", "")
        if one.tag in ("textarea", "input") and kind != "hidden" and one.attributes.get("id") not in labelled:
            found.append(f"<{one.tag}> without a label")
        if one.tag in ("button", "a", "summary", "h1", "h2", "label") and not one.text:
            found.append(f"<{one.tag}> without a text")
        for name in ("aria-labelledby", "aria-describedby"):
            if name in one.attributes and one.attributes[name] not in ids:
                found.append(f"{name} leads nowhere")
        if one.tag in ("script", "iframe", "img", "object", "style") or any(
            name.startswith("on") or name == "style" for name in one.attributes
        ):
            found.append(f"<{one.tag}> with a script or a style of its own")
        for name in ("href", "src", "action"):
            if not one.attributes.get(name, "/").startswith(("/", "#")):
                found.append(f"leads outside: {one.attributes[name]}")
    levels = [int(one.tag[1]) for one in read.elements if one.tag in ("h1", "h2", "h3")]
    if any(after > before + 1 for before, after in pairwise(levels)):
        found.append(f"headings jump: {levels}")
    return found
