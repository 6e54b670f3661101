"""A message as plain text, within the bounds of a service: what does not fit is cut, with a mark."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import NamedTuple

from pwf.protocol.channel_port import ChannelMessage
from pwf.protocol.decision_spec import Block, Bullets, Diff, Fields, Paragraph, Preformatted, Section

MARK = "…"
PRESS = re.compile(r"([0-9a-f]{32}):(\d{1,2})(:text)?", re.ASCII)
NOT_NAMED = "you are not among those who may decide here"  # what a person is told whom the configuration does not name


def text_of(message: ChannelMessage, *, choices: bool) -> str:
    """The whole message. `choices`: they are listed, where no buttons show them."""
    lines = [message.title] if message.text is None else [message.title, "", message.text]
    if message.shown is not None:
        lines += ["", message.shown.summary]
        for block in message.shown.blocks:
            lines += list(_lines(block))
    if message.choices:
        lines.append("")
        if choices:
            lines += [f"• {choice.id}: {choice.label}" for choice in message.choices]
        if message.deadline_ms is not None:
            at = time.strftime("%Y-%m-%d %H:%M", time.localtime(message.deadline_ms / 1_000))
            then = f", then {message.default}" if message.default is not None else ""
            lines.append(f"until {at}{then}")
    if message.link is not None:
        lines.append(message.link)
    return "\n".join([*lines, message.words])


class Press(NamedTuple):
    """What a button bears. `with_text`: the person wants to be asked for a text, which may be left out."""

    token: str
    number: int
    with_text: bool


def buttons_of(message: ChannelMessage) -> Iterator[tuple[str, str]]:
    """Label and value of each, the value within 64 bytes: one a choice, and another where a text may come with it."""
    for number, choice in enumerate(message.choices):
        yield choice.label, f"{message.token}:{number}"
        if choice.text is not None and not choice.text.required:
            yield f"{choice.label} ✎ {choice.text.label}", f"{message.token}:{number}:text"


def press_of(value: str) -> Press | None:
    """Read the value of a button; None for what is none of ours."""
    found = PRESS.fullmatch(value)
    return None if found is None else Press(found[1], int(found[2]), found[3] is not None)


def _lines(block: Block) -> Iterator[str]:
    match block:
        case Paragraph(text=words) | Preformatted(text=words) | Diff(text=words):
            yield words
        case Section(title=title):
            yield f"\n{title}"
        case Bullets(items=items):
            yield from (f"- {item}" for item in items)
        case Fields(fields=fields):
            yield from (f"{name}: {value}" for name, value in fields.items())


def cut(text: str, most: int, encoding: str = "utf-8") -> str:
    """At most so many units of the encoding (bytes, or two bytes of UTF-16), with a mark where something is missing."""
    unit = 2 if encoding.startswith("utf-16") else 1
    if len(text.encode(encoding)) <= most * unit:
        return text
    room = most * unit - len(MARK.encode(encoding))
    return text.encode(encoding)[:room].decode(encoding, "ignore").rstrip("\u200d\u200f\u200e") + MARK
