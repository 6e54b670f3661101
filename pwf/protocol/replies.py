"""What the holder of an agent's request says besides submitting: how its work goes, and a reply in its own words."""

from __future__ import annotations

from typing import Annotated

import msgspec

from pwf.protocol.bounds import Name

#: As long as a request can be, in characters; a longer reply is submitted as a value.
Text = Annotated[str, msgspec.Meta(max_length=1024 * 1024)]


class UpdatePayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the holder of an open request of an agent says of its work: it replaces what it said under this kind and key
    before. `revision` as in `SubmitPayload`.
    """

    request_id: Name
    data: msgspec.Raw
    kind: Name = "progress"
    key: Name = "work"
    revision: int | None = None


class RequestUpdated(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`revision`: of the run, and the number of the event."""

    request_id: str
    run_id: str
    revision: int


class AssistantPayload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The reply that an agent was asked for, exactly as it was shown. `revision` as in `SubmitPayload`."""

    request_id: Name
    text: Text
    revision: int | None = None
