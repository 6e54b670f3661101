"""Whether the audiences of a configuration can be served: each is shown somewhere, and people can answer.

Knows sections by what they have, not by their kinds: `users` or a `listen` of a channel that people answer through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

BUILT_IN_CHANNELS = ("terminal", "web")  # where people answer without a section of the configuration


class AudienceFault(NamedTuple):
    """What a key of an audience names, and what to do."""

    audience: str
    key: str
    what: str
    hint: str


def audience_fault(
    channels: Mapping[str, object], audiences: Mapping[str, object], *, has_pages: bool
) -> AudienceFault | None:
    """The first thing that is wrong. `has_pages`: others reach the answer pages, so that messages link to them."""
    shown = tuple(channels)
    for audience, said in audiences.items():
        for key, known in (("channels", shown), ("answers", (*BUILT_IN_CHANNELS, *shown))):
            for name in getattr(said, key):
                if name not in known:
                    names = ", ".join(known) or "there is none yet"
                    hint = f"add [channels.{name}], or name another: {names}"
                    return AudienceFault(audience, key, f"{name!r}, which is no channel", hint)
                if getattr(said, key).count(name) > 1:
                    return AudienceFault(audience, key, f"{name!r} twice", "name it once")
                if key == "answers" and name in shown and not answers(channels[name], has_pages=has_pages):
                    hint = "what its links decide counts as web: name that"
                    return AudienceFault(audience, key, f"{name!r}, through which nobody answers", hint)
    return None


def answers(channel: object, *, has_pages: bool) -> bool:
    """Whether people answer through it, and not only on the page that it links to."""
    has = {
        name
        for name in ("users", "hosts", "listen", "reply_topic")
        if getattr(channel, name, None) is not None
    }
    return bool(has & {"users", "hosts", "listen"}) or ("reply_topic" in has and not has_pages)
