"""How long a question is open, and what the answer is when none comes in time: `timeout=` and `default=`.

Owns the rules for both. `unsettled` and `default_fault` need the graph and the answer's type: they are judged with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.errors import InvalidArgument, PwfError
from pwf.protocol.graph import NodeSpec, RoutingFailed, route
from pwf.values import canonical
from pwf.workflow.faults import Fault
from pwf.workflow.schema import decoder_of, first_fault
from pwf.workflow.timing import to_ms

DEFAULT_BYTES_MAX = 4 * 1024  # it stands in the graph and in each request's row

#: Where no default was given: None is one.
NONE_GIVEN: Any = msgspec.UNSET

#: (what is wrong, what to write)
DEFAULT_FOR_EVER = "has a default, and waits for ever", "add timeout=hours(1), or remove default="


class Deadline(msgspec.Struct, frozen=True, kw_only=True):
    """Of a question. `default`: canonical JSON, None where there is none."""

    open_ms: int
    default: str | None = None


def deadline(timeout: Any, default: Any, fault: Fault) -> Deadline | None:
    """The same, checked as far as the node alone tells; None: it waits for ever."""
    if timeout is None:
        if default is not NONE_GIVEN:
            fault.refuse(*DEFAULT_FOR_EVER)
        return None
    try:
        open_ms = to_ms(timeout, "timeout")
    except InvalidArgument as error:
        fault.refuse(f"is wrong: {error.message}", error.hint)
    if default is NONE_GIVEN:
        return Deadline(open_ms=open_ms)
    try:
        data = canonical(default, limit=DEFAULT_BYTES_MAX, what="the default")
    except PwfError as error:
        fault.refuse(f"has a default that can not be kept: {error.message}", error.hint)
    return Deadline(open_ms=open_ms, default=data.decode())


def unsettled(found: Deadline, node_id: str, outcomes: set[str]) -> tuple[str, str] | None:
    """(what is wrong, what to write) where what follows without an answer in time is said not at all, or twice."""
    if found.default is None and "timed_out" not in outcomes:
        return (
            "has a timeout, and nothing says what follows when nobody answers in time",
            f'give default=…, or a way out: {node_id}.on("timed_out") >> node',
        )
    if found.default is not None and "timed_out" in outcomes:
        return (
            "has a default, and a way out for timed_out that is never taken",
            "remove one of the two: with a default it never times out",
        )
    return None


def default_fault(default: str, returns: Any, schema: dict[str, Any] | None, spec: NodeSpec) -> str | None:
    """What is wrong with a default as an answer of this type that leads on; None when nothing is."""
    data = default.encode()
    if returns is not None and not isinstance(returns, dict):
        try:
            decoder_of(returns).decode(data)
        except msgspec.ValidationError as error:
            return f"is not of the declared type: {error}"
    if schema is not None and (wrong := first_fault(schema, data)) is not None:
        return f"is not of the declared type: {wrong}"
    try:
        route(spec, "completed", msgspec.json.decode(data))
    except RoutingFailed as error:
        return f"leads nowhere: {error}"
    return None
