"""What `pwf answer`, `pwf submit` and `pwf decide` share: typing until it is taken, and saying that it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.out import Out, print_error
from pwf.errors import PwfError
from pwf.present import text

if TYPE_CHECKING:
    from pwf.client.core import CallReply


def until_taken(prompt: str, send: Callable[[str], CallReply]) -> CallReply | None:
    """Read lines and `send` them until one is taken; None when an empty line or the end of input leaves it open.

    What is typed wrongly is said, and may be typed again. Whatever else `send` raises is raised.
    """
    while typed := _line(prompt):
        try:
            return send(typed)
        except PwfError as error:
            if exits.of_error(error.code) != exits.USAGE:
                raise
            print_error(error, as_json=False)
    return None


def say_settled(reply: CallReply, out: Out, done: str, *names: str) -> None:
    """That it was `done`, or had been so already; `names` say what was."""
    if out.as_json:
        out.emit_reply(reply)
        return
    settled = reply.result
    already = f"already {done} so" if reply.outcome == "adopted" else done
    run = f"run {text.line(settled.run_id)}  {out.status(settled.status)}"
    out.print("  ".join([already, *map(text.line, names), run]))


def _line(prompt: str) -> str:
    """What was typed; nothing at the end of input."""
    try:
        return input(prompt).strip()
    except EOFError:
        return ""
