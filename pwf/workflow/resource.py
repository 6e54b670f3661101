"""What a manager's function sees of its resource: read-only, made anew for every reconcile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from pwf.errors import InvalidArgument
from pwf.protocol import reconcile as wire
from pwf.protocol.resources import ChildView, ConditionStatus
from pwf.protocol.resources import Condition as KeptCondition
from pwf.protocol.runner import Value
from pwf.protocol.views import ENDED, NEEDS_PERSON

SpecT_co = TypeVar("SpecT_co", covariant=True)
StatusT_co = TypeVar("StatusT_co", covariant=True)
ReadValue = Callable[[Value], bytes]

NAME_CHARS_MAX = 256
MESSAGE_CHARS_MAX = 4_096

_WORDS: dict[bool | None, ConditionStatus] = {True: "True", False: "False", None: "Unknown"}


@dataclass(frozen=True, slots=True)
class Condition:
    """One fact about a resource, for people and programs: `Condition("Ready", False, "Fetching", "2 of 5 branches")`.

    `status` is True, False, or None for unknown. The last two fields are the daemon's: since when it is so
    (milliseconds since 1970), and for which generation of the spec it was said.
    """

    type: str
    status: bool | None
    reason: str = ""
    message: str = ""
    changed_ms: int = 0
    observed_generation: int = 0

    def __post_init__(self) -> None:
        if not (self.status is None or isinstance(self.status, bool)):
            raise InvalidArgument(
                f"condition {self.type!r:.60} has the status {self.status!r:.40}",
                hint="give True, False or None",
            )
        check_text(self.type, "type of a condition", NAME_CHARS_MAX, needed=True)
        check_text(self.reason, f"reason of condition {self.type!r:.60}", NAME_CHARS_MAX)
        check_text(self.message, f"message of condition {self.type!r:.60}", MESSAGE_CHARS_MAX)

    def said(self) -> wire.SaidCondition:
        """The same as a message."""
        return wire.SaidCondition(
            type=self.type, status=_WORDS[self.status], reason=self.reason, message=self.message
        )

    @classmethod
    def kept(cls, facts: KeptCondition) -> Condition:
        """A condition as the daemon keeps it."""
        status = {"True": True, "False": False}.get(facts.status)
        return cls(
            facts.type, status, facts.reason, facts.message, facts.changed_ms, facts.observed_generation
        )


@dataclass(frozen=True, slots=True)
class Child:
    """A child run as it stands. `ended` ones have an `output` where they completed; `reason` says why it stands still.

    `needs_person`: it waits for an answer, is paused or is held.
    """

    request_key: str
    run_id: str
    workflow: str
    status: str
    reason: str | None = None
    output: Any = None

    @property
    def ended(self) -> bool:
        """Whether nothing more happens to it."""
        return self.status in ENDED

    @property
    def completed(self) -> bool:
        """Whether it ended well."""
        return self.status == "completed"

    @property
    def needs_person(self) -> bool:
        """Whether it goes on only when somebody does something."""
        return self.status in NEEDS_PERSON

    @classmethod
    def of(cls, seen: ChildView, read_value: ReadValue) -> Child:
        """The same with its output read."""
        output = None if seen.output is None else msgspec.json.decode(read_value(seen.output))
        return cls(seen.request_key, seen.run_id, seen.workflow, seen.status, seen.reason, output)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[SpecT_co, StatusT_co]):
    """The resource as it stood when this reconcile began.

    `spec` is what somebody wants, `status` what this manager kept last. `deleting`: clean up, and then leave your
    finalizer out. `uid` is another one after a delete and an apply. `failures`: reconciles that failed in a row before
    this one. `reasons`: what has woken it.
    """

    manager: str
    key: str
    uid: str
    spec: SpecT_co
    status: StatusT_co
    generation: int
    observed_generation: int
    resource_version: int
    conditions: Mapping[str, Condition] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    children: Mapping[str, Child] = field(default_factory=dict)
    deleting: bool = False
    failures: int = 0
    reasons: tuple[str, ...] = ()


def check_text(text: object, what: str, most: int, *, needed: bool = False) -> None:
    """Raise `InvalidArgument` for what is no short text."""
    if not isinstance(text, str) or len(text) > most or (needed and not text):
        raise InvalidArgument(
            f"the {what} is {text!r:.60}", hint=f"give a text of at most {most:,} characters"
        )
