"""`ctx.effect`: the effects that a step makes one by one, each guarded by its row in the daemon's ledger.

Promises: `apply` is called only when the row says `applying` on disk; what happened is never applied again; within one
attempt each key is used once, and a repeat gets what the first call got. What is left open here, the daemon finds open
at the attempt's end, and has it observed by the next attempt, or asks a person. A cancelled call leaves it open.

Plain and async functions take the same way: a generator gives what is to be called, and its driver calls or awaits it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, get_args

import msgspec

from pwf.errors import (
    Conflict,
    EffectAbandoned,
    EffectUnknown,
    InvalidArgument,
    InvalidValue,
    PwfError,
    Rejected,
)
from pwf.protocol.graph import EffectMode, NodeSpec
from pwf.protocol.kinds import Outcome
from pwf.protocol.masking import Masks
from pwf.protocol.runner import (
    PART_CHARS_MAX,
    REF_CHARS_MAX,
    BeginPart,
    PartAnswer,
    SettlePart,
    StepError,
    Value,
)
from pwf.runner.base.failure import bounded, error_without, leaves, plain_error, step_error
from pwf.runner.base.output import refuse_unrun
from pwf.runner.base.wire import ValueReader
from pwf.values import canonical, digest
from pwf.workflow.callables import is_async, misfit
from pwf.workflow.effects import NotApplied, Observation, after_error

Doer = Callable[[Any, str], Any]
Steps = Generator[Doer, Any, bytes]  # what to call with request and key; gives the output as canonical JSON

TIMED_OUT = frozenset({"timed_out", "runner_timed_out"})  # codes of an attempt whose time was over


class NotAppliedBefore(NotApplied):
    """An earlier try had failed, and by its observer the effect did not happen: the step has failed as that one did."""

    def __init__(self, key: str, error: StepError) -> None:
        super().__init__(f"effect {key!r} did not happen: {error.message}")
        self.error = error


def how_it_ended(error: BaseException) -> tuple[Outcome, StepError] | None:
    """The outcome of the earlier attempt that an exception tells of; None where it tells of this one."""
    found = list(leaves(error))
    if not found or not all(isinstance(leaf, NotAppliedBefore) for leaf in found):
        return None
    first = found[0]
    assert isinstance(first, NotAppliedBefore)
    return "timed_out" if first.error.code in TIMED_OUT else "failed", first.error


class Parts:
    """Those of one attempt. Any thread may call `effect`."""

    def __init__(
        self,
        link: ValueReader,
        attempt: int,
        spec: NodeSpec,
        key_of: Callable[[str], str],
        bytes_max: int,
        masks: Masks,
    ) -> None:
        assert spec.effect is not None
        self._link, self._attempt, self._spec, self._masks = link, attempt, spec, masks
        self._kind = spec.effect.type
        self._key_of = key_of
        self._bytes_max = bytes_max
        self._seen: dict[str, tuple[str, bytes | BaseException | None]] = {}  # key -> fingerprint, what came
        self._unsure: EffectUnknown | None = None  # an observer could not tell: nothing more is begun

    def effect(
        self,
        key: str,
        request: Any,
        *,
        apply: Doer,
        observe: Doer | None = None,
        mode: EffectMode = "manual",
        type: str | None = None,
    ) -> Any:
        """See `Context.effect`."""
        _check(key, apply, observe, mode, self._kind if type is None else type)
        what = f"the request of effect {key!r}"
        refuse_unrun(request, what)
        wanted = self._masks.json(canonical(request, limit=self._bytes_max, what=what))
        known = self._known(key, digest(wanted))
        call = _Call(key, wanted, type or self._kind, mode, apply, observe)
        steps = self._remembered(call) if known is None else _repeat(known)
        drive = _awaited if is_async(apply) else _called
        return drive(steps, request, self._key_of(key))

    @property
    def unsure(self) -> StepError | None:
        """An observer could not tell: the run is held, whatever the step's function makes of that."""
        if self._unsure is None:
            return None
        return plain_error(EffectUnknown.code, self._unsure.message, self._spec.id)

    # --- one call -------------------------------------------------------------------------------------------

    def _known(self, key: str, fingerprint: str) -> bytes | BaseException | None:
        """What came of this key in this attempt; None: nothing has asked for it."""
        if self._unsure is not None:
            raise self._unsure
        if key not in self._seen:
            return None
        earlier, came = self._seen[key]
        if earlier != fingerprint:
            raise _conflict(key, earlier, fingerprint)
        if came is None:
            raise Rejected(f"effect {key!r} is being made already: give each effect a key of its own")
        return came

    def _remembered(self, call: _Call) -> Steps:
        key, fingerprint = call.key, digest(call.wanted)
        if key in self._seen:
            raise Rejected(f"effect {key!r} is being made already: give each effect a key of its own")
        self._seen[key] = (fingerprint, None)
        try:
            output = yield from self._made(call, fingerprint)
        except BaseException as error:
            self._seen[key] = (fingerprint, error)
            raise
        self._seen[key] = (fingerprint, output)
        return output

    def _made(self, call: _Call, fingerprint: str) -> Steps:
        begin = BeginPart(
            attempt=self._attempt,
            part=call.key,
            kind=call.kind,
            mode=call.mode,
            request=self._link.put(call.wanted),
            observable=call.observe is not None,
        )
        answer = self._link.ask(begin)
        if answer.verdict == "observe":
            observation = yield from self._observed(call)
            if observation.verdict == "applied":
                return self._applied(call, observation.output, observation.ref)
            self._settle(call, "rejected", error=answer.error)
            if answer.error is not None:  # nobody gets a retry that they did not ask for
                raise NotAppliedBefore(call.key, answer.error)
            answer = self._link.ask(begin)
        if answer.verdict == "apply":
            return (yield from self._apply(call))
        return self._settled(call.key, answer, fingerprint)

    def _apply(self, call: _Call) -> Steps:
        try:
            output = yield call.apply
        except Exception as error:
            self._settle(call, after_error(error, call.mode), error=step_error(error, self._spec.id))
            raise
        return self._applied(call, output, None)

    def _applied(self, call: _Call, output: object, ref: str | None) -> bytes:
        """It happened; an output that can't be kept is told as the step's fault, and does not undo that."""
        what = f"the output of effect {call.key!r}"
        try:
            refuse_unrun(output, what)
            data = self._masks.json(canonical(output, limit=self._bytes_max, what=what))
        except PwfError as error:
            self._settle(call, "applied", ref=ref, error=step_error(error, self._spec.id, code=error.code))
            raise
        self._settle(call, "applied", output=self._link.put(data), ref=ref)
        return data

    def _observed(self, call: _Call) -> Generator[Doer, Any, Observation]:
        assert call.observe is not None  # or the daemon would not ask for it
        key = call.key
        try:
            found = yield call.observe
        except Exception as error:
            message = f"observe of effect {key!r} raised {type(error).__name__}: {error}"
            self._unsure = EffectUnknown(bounded(message, 2_000))
            raise self._unsure from error
        if isinstance(found, Observation) and found.verdict != "unknown":
            return found
        said = "could not tell whether it happened" if isinstance(found, Observation) else "gave no answer"
        self._unsure = EffectUnknown(
            f"observe of effect {key!r} {said}", hint="return applied(…), not_applied() or unknown()"
        )
        raise self._unsure

    def _settled(self, key: str, answer: PartAnswer, fingerprint: str) -> bytes:
        """The output of one that happened before. Raises for every other answer."""
        why = "" if answer.error is None else f": {answer.error.message}"
        if answer.verdict == "applied":
            if answer.error is not None:
                raise InvalidValue(f"effect {key!r} happened, and its output could not be kept{why}")
            return self._link.fetch(answer.output or Value(), f"the output of effect {key!r}")
        if answer.verdict == "conflict":
            raise _conflict(key, answer.fingerprint or "", fingerprint)
        if answer.verdict == "unknown":
            raise EffectUnknown(f"nobody knows whether effect {key!r} happened{why}")
        if answer.verdict == "abandoned":
            raise EffectAbandoned(f"effect {key!r} was given up by a person; it may have happened")
        raise Rejected(f"effect {key!r} was not begun{why}")

    def _settle(
        self,
        call: _Call,
        status: Any,
        *,
        output: Value | None = None,
        ref: str | None = None,
        error: StepError | None = None,
    ) -> None:
        ref = None if ref is None else bounded(self._masks.text(str(ref)), REF_CHARS_MAX)
        error = None if error is None else error_without(error, self._masks)
        said = SettlePart(
            attempt=self._attempt, part=call.key, status=status, output=output, ref=ref, error=error
        )
        answer = self._link.ask(said)
        if answer.verdict != "settled":
            why = "" if answer.error is None else f": {answer.error.message}"
            raise Rejected(f"effect {call.key!r} could not be settled{why}")


class _Call(msgspec.Struct, frozen=True):
    """One call of `ctx.effect`, checked. `wanted`: the canonical request."""

    key: str
    wanted: bytes
    kind: str
    mode: EffectMode
    apply: Doer
    observe: Doer | None


def _called(steps: Steps, request: Any, effect_key: str) -> Any:
    try:
        wanted = next(steps)
        while True:
            try:
                came = wanted(request, effect_key)
            except BaseException as error:  # noqa: BLE001 - user code, and the generator raises it
                wanted = steps.throw(error)
            else:
                wanted = steps.send(came)
    except StopIteration as end:
        return msgspec.json.decode(end.value)


async def _awaited(steps: Steps, request: Any, effect_key: str) -> Any:
    try:
        wanted = next(steps)
        while True:
            try:
                came = wanted(request, effect_key)
                if isinstance(came, Awaitable):
                    came = await came
            except BaseException as error:  # noqa: BLE001 - as above
                wanted = steps.throw(error)
            else:
                wanted = steps.send(came)
    except StopIteration as end:
        return msgspec.json.decode(end.value)


def _repeat(known: bytes | BaseException) -> Steps:
    yield from ()
    if isinstance(known, BaseException):
        raise known
    return known


def _conflict(key: str, earlier: str, now: str) -> Conflict:
    return Conflict(
        f"effect {key!r} was made with another request: its fingerprint is {earlier}, that of this one {now}",
        hint="a key names one request of its visit, which must depend on ctx alone; give this one a key of its own",
    )


def _check(key: str, apply: Doer, observe: Doer | None, mode: str, kind: str) -> None:
    for what, text in (("key", key), ("type", kind)):
        if not isinstance(text, str) or not 1 <= len(text) <= PART_CHARS_MAX or not text.isprintable():
            raise InvalidArgument(
                f"an effect's {what} is a text of 1 to {PART_CHARS_MAX} printable characters, not {text!r:.80}"
            )
    if mode not in get_args(EffectMode):
        raise InvalidArgument(
            f"effect {key!r} has mode={mode!r:.40}", hint='mode is "manual" or "idempotent"'
        )
    for name, fn in (("apply", apply), ("observe", observe)):
        if fn is None and name == "observe":
            continue
        if not callable(fn):
            raise InvalidArgument(f"effect {key!r} has {name}={fn!r:.60}, which is not a function")
        if wrong := misfit(fn, ("request", "effect_key")):
            raise InvalidArgument(f"effect {key!r} has an {name}= that {wrong}")
    if observe is not None and is_async(observe) and not is_async(apply):
        raise InvalidArgument(
            f"effect {key!r} has an async observe= and a plain apply=", hint="make both async"
        )
