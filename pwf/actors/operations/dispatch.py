"""Every operation of `pwf.client.v1`, from a decoded request to its response.

Owns the table of handlers and the one mapping from errors to outcomes. Promises: a payload is checked
against the protocol's struct before anything happens; a state-changing command carries its receipt into the
store's transaction; what a drain or a degraded daemon does not do is refused here, in one place. Handlers
hold no state.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import msgspec

from pwf.actors.operations import (
    agents,
    channels,
    contents,
    daemon,
    decisions,
    effects,
    follow_ups,
    fork,
    notices,
    printed,
    requests,
    resources,
    runs,
    sessions,
    settings,
    start,
    state,
    views,
    web,
    workflows,
)
from pwf.actors.operations.caller import Caller
from pwf.actors.operations.contents import check_contents
from pwf.actors.operations.services import (
    Answer,
    Asked,
    OperationHandler,
    Services,
    first_answer,
    kept_refusal,
    scope_key,
)
from pwf.actors.operations.sessions import check_own, check_session
from pwf.errors import (
    ClaimLost,
    Conflict,
    InvalidArgument,
    NotFound,
    PwfError,
    StoreBroken,
    Unavailable,
)
from pwf.protocol.frames import Request, Response, ResponseOutcome, error_body
from pwf.protocol.operations import OPERATIONS
from pwf.protocol.origin import Origin
from pwf.values import shortened

HANDLERS: dict[str, OperationHandler] = {
    **daemon.HANDLERS,
    **state.HANDLERS,
    **workflows.HANDLERS,
    **start.HANDLERS,
    **fork.HANDLERS,
    **contents.HANDLERS,
    **runs.HANDLERS,
    **settings.HANDLERS,
    **follow_ups.HANDLERS,
    **printed.HANDLERS,
    **requests.HANDLERS,
    **decisions.HANDLERS,
    **web.HANDLERS,
    **channels.HANDLERS,
    **effects.HANDLERS,
    **resources.HANDLERS,
    **agents.HANDLERS,
    **sessions.HANDLERS,
    **notices.HANDLERS,
    **views.HANDLERS,
}

#: What a daemon that came up degraded still does besides reads: get rid of what makes it fail, and end.
DEGRADED_ALLOWED = frozenset({"daemon.stop", "run.cancel", "run.pause", "resource.pause", "state.prune"})
#: What a daemon that is stopping no longer does.
DRAINING_REFUSED = frozenset({"run.start", "run.restart", "run.fork", "resource.apply"})

NUMBER_MAX = 2**53 - 1  # what JSON carries exactly everywhere

OWN_RECEIPTS = (
    "run.start",
)  # the same project, workflow and input are the same start, however they were typed

_encoder = msgspec.json.Encoder()


class Operations:
    """`handle` is what connections call."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._decoders = {
            name: msgspec.json.Decoder(operation.payload) for name, operation in OPERATIONS.items()
        }

    async def handle(self, request: Request, caller: Caller) -> Response:
        """Answer one request. Raises nothing but bugs."""
        if caller.attaching is not None:
            await caller.attaching.wait()
        try:
            asked = self._asked(request, caller)
            self._allowed(request.operation)
            await check_own(self._services, asked)
            try:
                answer = await HANDLERS[request.operation](self._services, asked)
            except PwfError as refusal:
                answer = await self._first_answer(asked, refusal)
        except PwfError as error:
            return Response(request_id=request.request_id, outcome=outcome_of(error), error=error_body(error))
        return _response(request, answer, asked.scope_key)

    async def _first_answer(self, asked: Asked[Any], refusal: PwfError) -> Answer:
        """A repeat gets its first answer, though what it was about is gone by now. Raises the refusal of a new one.

        One that a repeat is to get again is kept in the transaction that looks: two at once have one answer.
        """
        operation = asked.request.operation
        if (
            asked.scope_key is None
            or operation in OWN_RECEIPTS
            or outcome_of(refusal) in ("unavailable", "claim_lost")
        ):
            raise refusal
        receipt = await asked.make_receipt()
        assert receipt is not None, "what has a scope has a receipt"
        result = OPERATIONS[operation].result
        if isinstance(refusal, NotFound):
            return await kept_refusal(self._services.store, receipt, result, refusal)
        return await first_answer(self._services.store, receipt, result, refusal)

    def _asked(self, request: Request, caller: Caller) -> Asked[msgspec.Struct]:
        operation = OPERATIONS.get(request.operation)
        if operation is None or request.operation not in HANDLERS:
            raise InvalidArgument(
                f"there is no operation {shortened(request.operation, 80)!r}",
                hint="; ".join(sorted(HANDLERS)),
            )
        if operation.needs_run and not request.run_id:
            raise InvalidArgument(f"{request.operation} needs a run_id")
        if request.expected_revision is not None and not operation.guarded:
            raise InvalidArgument(f"{request.operation} takes no expected_revision")
        try:
            payload = self._decoders[request.operation].decode(request.payload)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidArgument(f"the payload of {request.operation} is wrong: {error}") from error
        check_contents(request, payload)
        check_numbers(payload)
        _check_number("expected_revision", request.expected_revision)
        check_origin(getattr(payload, "origin", None))
        session = None
        if caller.session is not None:
            session = caller.session.session_id
            check_session(caller.session, request.operation)
        return Asked(
            request=request,
            payload=payload,
            caller=caller,
            scope_key=scope_key(request, session) if operation.changes else None,
            actor=f"client:{self._services.user}" if session is None else f"session:{session}",
        )

    def _allowed(self, operation: str) -> None:
        life = self._services.life
        changes = OPERATIONS[operation].changes or OPERATIONS[operation].writes
        if life.state == "degraded" and changes and operation not in DEGRADED_ALLOWED:
            raise Unavailable(
                f"the daemon only serves reads: {life.why_degraded}",
                hint="pwf logs shows the cause; pwf stop and pwf start try again",
            )
        if life.state == "draining" and operation in DRAINING_REFUSED:
            raise Unavailable("the daemon is stopping", hint="repeat the command when it has stopped")


def check_numbers(payload: msgspec.Struct) -> None:
    """Refuse numbers that no column can hold, before they reach one."""
    for name in _numeric(type(payload)):
        value = getattr(payload, name)
        if isinstance(value, msgspec.Struct):
            check_numbers(value)
        _check_number(name, value)


@cache
def _numeric(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """The fields that may hold a number, or a struct that may."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if _may_be_a_number(field.type))


def _may_be_a_number(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return bool(_numeric(kind))
    return kind in (int, Any, object) or any(map(_may_be_a_number, get_args(kind)))


def _check_number(name: str, value: object) -> None:
    if isinstance(value, int) and abs(value) > NUMBER_MAX:
        raise InvalidArgument(f"{name} is out of range", hint=f"use a number up to {NUMBER_MAX:,}")


def check_origin(origin: Origin | None) -> None:
    """Refuse an origin that no process could have."""
    if origin is None:
        return
    environment = origin.environment
    names = " ".join(environment)
    if (
        "=" in names
        or "" in environment
        or "\0" in " ".join((names, origin.cwd, origin.python, *environment.values()))
    ):
        raise InvalidArgument("the origin has a NUL, or a variable without a proper name")
    for what, path in (("cwd", origin.cwd), ("python", origin.python)):
        if not path.startswith("/"):
            raise InvalidArgument(f"the origin's {what} {shortened(path, 80)!r} is not an absolute path")


def outcome_of(error: PwfError) -> ResponseOutcome:
    """The one mapping from errors to outcomes."""
    if isinstance(error, NotFound):
        return "not_found"
    if isinstance(error, Conflict):
        return "conflict"
    if isinstance(error, ClaimLost):
        return "claim_lost"
    if isinstance(error, Unavailable | StoreBroken):
        return "unavailable"
    return "rejected"


def _response(request: Request, answer: Answer, receipt: str | None) -> Response:
    return Response(
        request_id=request.request_id,
        outcome="adopted" if answer.adopted else "accepted",
        revision=getattr(answer.result, "revision", None),
        receipt=receipt,
        result=msgspec.Raw(_encoder.encode(answer.result)),
    )
