"""What the daemon and the process that watches files say to each other: lines of JSON over its stdin and stdout."""

from __future__ import annotations

import msgspec


class Watch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is watched from now on: absolute paths, each with its mark as somebody has acted on it."""

    marks: dict[str, str]


class Changed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is now otherwise than its mark says, with its mark of now; each change is told once."""

    marks: dict[str, str]


watch_line = msgspec.json.Decoder(Watch)
changed_line = msgspec.json.Decoder(Changed)
