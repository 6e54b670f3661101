"""`ctx` of a reconcile: what a manager's function may do to the world, and how it says what it came to.

Promises: an effect is applied at most once under its key, unless its observer says that it did not happen; what has
been settled is answered from the store, and nothing is run. Each call is on disk before it returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Literal

import msgspec

from pwf.errors import EffectAbandoned, EffectUnknown, InvalidArgument, InvalidValue, PwfError, Rejected
from pwf.ids import check_key
from pwf.protocol.follow_ups import FOLLOW_UP_BYTES_MAX
from pwf.protocol.graph import EffectMode
from pwf.protocol.reconcile import (
    CONDITIONS_MAX,
    EVENT_BYTES_MAX,
    EVENTS_MAX,
    FINALIZERS_MAX,
    SENT_BYTES_MAX,
    SaidEvent,
)
from pwf.protocol.settings import PATCH_BYTES_MAX
from pwf.values import canonical
from pwf.workflow.effects import NotApplied, Observation, after_error
from pwf.workflow.reconcile_port import ReconcilePort, Reserved
from pwf.workflow.resource import (
    MESSAGE_CHARS_MAX,
    NAME_CHARS_MAX,
    Child,
    Condition,
    ReadValue,
    check_text,
)
from pwf.workflow.timing import to_ms

REQUEST_BYTES_MAX = 1024 * 1024

Apply = Callable[[Any, str], Any]
Observe = Callable[[Any, str], Any]


class Outcome:
    """What a reconcile came to. Made by `ctx.settled` and `ctx.requeue`, never directly."""

    __slots__ = ("after_ms", "conditions", "finalizers", "result", "status")

    def __init__(
        self,
        result: Literal["settled", "requeue"],
        after_ms: int | None,
        status: Any,
        conditions: Iterable[Condition],
        finalizers: Iterable[str] | None,
    ) -> None:
        self.result = result
        self.after_ms = after_ms
        self.status = status
        self.conditions = _conditions(conditions)
        self.finalizers = None if finalizers is None else _finalizers(finalizers)


class ReconcileContext:
    """What the function of a manager gets as `ctx`."""

    def __init__(self, port: ReconcilePort, read_value: ReadValue, told: list[SaidEvent]) -> None:
        self.effects = Effects(port)
        self.workflows = Workflows(port, read_value)
        self._port = port
        self._told = told  # the caller's, who has it also when the function fails

    def secret(self, name: str) -> str:
        """The value of a secret that `ResourceManager(secrets=…)` names, looked up now, by the daemon.

        pwf keeps its name alone: where the value appears in what the function returns, raises, tells, asks for or
        prints, `***` is kept. Raises `SecretMissing` where it can't be had: the message says what to do.
        """
        return self._port.read_secret(name)

    def settled(
        self,
        status: Any = None,
        *,
        conditions: Iterable[Condition] = (),
        finalizers: Iterable[str] | None = None,
    ) -> Outcome:
        """The world is as the spec wants it, or nothing can be done before something changes.

        `status`: the whole status as its type, or a dict that is merged into it (None removes a key). `conditions`:
        those that are said anew; the others stay. `finalizers`: all that are left; None leaves them as they are.
        """
        return Outcome("settled", None, status, conditions, finalizers)

    def requeue(
        self,
        status: Any = None,
        *,
        after: timedelta | None = None,
        conditions: Iterable[Condition] = (),
        finalizers: Iterable[str] | None = None,
    ) -> Outcome:
        """There is more to do: reconcile again `after` so long, or soon. The rest is as with `settled`."""
        after_ms = None if after is None else to_ms(after, "ctx.requeue(after=…)")
        return Outcome("requeue", after_ms, status, conditions, finalizers)

    def event(self, reason: str, message: str = "", **data: Any) -> None:
        """Tell something in the resource's history. `reason` is a constant word, `data` what programs may want."""
        if len(self._told) >= EVENTS_MAX:
            raise Rejected(
                f"a reconcile may tell at most {EVENTS_MAX} events", hint="tell sums, not each item"
            )
        check_text(reason, "reason of an event", NAME_CHARS_MAX, needed=True)
        check_text(message, f"message of event {reason!r:.60}", MESSAGE_CHARS_MAX)
        body = canonical(data, limit=EVENT_BYTES_MAX, what=f"the data of event {reason!r}") if data else None
        told = SaidEvent(reason=reason, message=message, data=None if body is None else msgspec.Raw(body))
        self._told.append(told)


class Effects:
    """`ctx.effects`."""

    def __init__(self, port: ReconcilePort) -> None:
        self._port = port

    def ensure(
        self,
        key: str,
        kind: str,
        request: Any,
        observe: Observe | None = None,
        apply: Apply | None = None,
        *,
        mode: EffectMode = "manual",
    ) -> Any:
        """Apply an effect once under this key, and return its result as JSON data; a repeat gets the stored one.

        `key` names one occasion (a counter in status, say), `kind` the sort of effect for people. `request` is what is
        wanted, as JSON: another request under the key is a conflict. `apply(request, effect_key)` does it, and
        `observe(request, effect_key)` finds out whether an interrupted try happened: `applied(output)`,
        `not_applied()` or `unknown()`. Of a ready-made request (`pwf.effects`) both are taken. `mode="idempotent"`: it
        may be applied again without harm.

        Raises `NotApplied` when it did not happen, `EffectUnknown` when nobody can tell, and `EffectAbandoned` when a
        person gave it up, so that it may have happened; let them pass, unless you know better.
        Both functions are plain ones; an async reconcile that must not wait for them calls `ensure` in
        a thread.
        """
        check_key(key, "the key of an effect")
        check_text(kind, f"kind of effect {key!r}", NAME_CHARS_MAX, needed=True)
        apply, observe = _doers(key, request, apply, observe)
        body = canonical(request, limit=REQUEST_BYTES_MAX, what=f"the request of effect {key!r}")
        observable = observe is not None and mode == "manual"
        for _ in range(2):  # once more where the observer says that it did not happen
            reserved = self._port.reserve_effect(
                key=key, kind=kind, request=body, mode=mode, observable=observable
            )
            if reserved.state == "apply":
                return self._apply(key, request, apply, reserved, mode)
            if reserved.state == "observe" and observe is not None:
                output = self._observe(key, kind, request, observe, reserved)
                if output is None:
                    continue
                return msgspec.json.decode(output)
            return _stored(key, kind, reserved)
        raise _unknown(key, kind)

    def _apply(self, key: str, request: Any, apply: Apply, reserved: Reserved, mode: EffectMode) -> Any:
        try:
            output = apply(request, reserved.effect_key)
        except Exception as error:
            why = str(error) if isinstance(error, NotApplied) else f"{type(error).__name__}: {error}"
            self._port.settle_effect(key=key, settled=after_error(error, mode), error=why)
            raise
        return msgspec.json.decode(self._happened(key, output))  # what every repeat gets

    def _observe(
        self, key: str, kind: str, request: Any, observe: Observe, reserved: Reserved
    ) -> bytes | None:
        """What an earlier try has made, as JSON; None where it did not happen."""
        seen: object = observe(request, reserved.effect_key)
        if not isinstance(seen, Observation):
            raise InvalidArgument(
                f"observe of effect {key!r} returned {seen!r:.60}",
                hint="return applied(output), not_applied() or unknown()",
            )
        if seen.verdict == "unknown":
            self._port.settle_effect(key=key, settled="unknown")
            raise _unknown(key, kind)
        if seen.verdict == "not_applied":
            self._port.settle_effect(key=key, settled="rejected")
            return None
        return self._happened(key, seen.output, ref=seen.ref)

    def _happened(self, key: str, output: Any, *, ref: str | None = None) -> bytes:
        """An output that can't be kept is told as the manager's fault, and does not undo that."""
        applied: dict[str, Any] = {"key": key, "settled": "applied", "ref": ref}
        try:
            stored = canonical(output, limit=SENT_BYTES_MAX, what=f"the result of effect {key!r}")
        except PwfError as error:
            self._port.settle_effect(**applied, error=error.message)
            raise
        self._port.settle_effect(**applied, output=stored)
        return stored


class Workflows:
    """`ctx.workflows`: child runs."""

    def __init__(self, port: ReconcilePort, read_value: ReadValue) -> None:
        self._port = port
        self._read_value = read_value

    def ensure(self, request_key: str, workflow: str, input: Any = None) -> Child:
        """The child run under this key, started where there is none. Its end, or what holds it, wakes this resource.

        The same key and input give the same child for as long as the resource lives; another input is a conflict.
        """
        check_key(request_key, "the key of a child run")
        check_text(workflow, f"workflow of child run {request_key!r}", MESSAGE_CHARS_MAX, needed=True)
        body = canonical(input, limit=SENT_BYTES_MAX, what=f"the input of child run {request_key!r}")
        seen = self._port.ensure_child(request_key=request_key, workflow=workflow, input=body)
        return Child.of(seen, self._read_value)

    def cancel(self, request_key: str) -> Child | None:
        """Ask for the end of the child run under this key; None where there is none."""
        check_key(request_key, "the key of a child run")
        found = self._port.cancel_child(request_key=request_key)
        return None if found is None else Child.of(found, self._read_value)

    def change_settings(
        self, request_key: str, patch: list[dict[str, Any]], *, key: str, scope: str | None = None
    ) -> int:
        """Change the settings of the child run under `request_key` by a JSON Patch (RFC 6902); its change number.

        `key` names one occasion (a counter in status, say): a repeat gives the first number, and another patch under
        it is a conflict. A child that was restarted has its first settings again, and takes the change again.
        `scope`: the node that includes the workflow whose settings are meant, `""` for the child's own; it may be left
        out where there are no others. What a manager may change, the child's workflow says: `"manager"` in `paths=`.

        Raises `Rejected` for what it may not do or the workflow refuses, and for a child that has ended; `Conflict`
        where a `test` of the patch fails; `NotFound` where there is no child.
        """
        check_key(request_key, "the key of a child run")
        check_key(key, "the key of a change")
        body = canonical(patch, limit=PATCH_BYTES_MAX, what=f"the patch of change {key!r}")
        return self._port.change_child(request_key=request_key, key=key, patch=body, scope=scope)

    def queue_follow_up(self, request_key: str, text: str, *, key: str) -> str:
        """Queue a prompt for the session of the child run under `request_key`, for after its success; its id.

        `key` names one occasion: a repeat gives the first id. Raises `Rejected` for a child that has no session, so
        that nobody would get it, or that has ended.
        """
        check_key(request_key, "the key of a child run")
        check_key(key, "the key of a follow-up")
        check_text(text, f"text of follow-up {key!r}", FOLLOW_UP_BYTES_MAX, needed=True)
        return self._port.queue_for_child(request_key=request_key, key=key, text=text)

    def remove_follow_up(self, request_key: str, follow_up_id: str) -> None:
        """Remove a follow-up that this manager has queued. Raises `Rejected` for one that was sent."""
        check_key(request_key, "the key of a child run")
        self._port.remove_for_child(request_key=request_key, follow_up=follow_up_id)


def _doers(
    key: str, request: Any, apply: Apply | None, observe: Observe | None
) -> tuple[Apply, Observe | None]:
    """The two functions; those of a ready-made request where none is given."""
    if apply is not None:
        return apply, observe
    if not callable(getattr(request, "apply", None)):
        raise InvalidArgument(
            f"effect {key!r} has no apply=", hint="give apply=fn, or a request of pwf.effects"
        )
    looks = getattr(request, "observable", False)
    return (lambda it, effect_key: it.apply(effect_key)), (
        (lambda it, effect_key: it.observe(effect_key)) if looks else observe
    )


def _unknown(key: str, kind: str) -> EffectUnknown:
    """Let it pass: the resource is then `Ready=False/EffectAmbiguous` until somebody says what happened."""
    return EffectUnknown(f"nobody can tell whether effect {key!r} ({kind}) happened")


def _stored(key: str, kind: str, reserved: Reserved) -> Any:
    """What became of a settled effect."""
    if reserved.state == "applied" and reserved.error is not None:
        raise InvalidValue(f"effect {key!r} happened, and its result could not be kept: {reserved.error}")
    if reserved.state == "applied":
        return msgspec.json.decode(reserved.output)
    if reserved.state == "abandoned":
        raise EffectAbandoned(
            f"effect {key!r} ({kind}) was given up by a person; it may have happened",
            hint="except EffectAbandoned: where the manager can go on without it; another key is another occasion",
        )
    raise _unknown(key, kind)


def _conditions(given: Iterable[Condition]) -> tuple[Condition, ...]:
    found = tuple(given)
    for one in found:
        if not isinstance(one, Condition):
            raise InvalidArgument(
                f"conditions= has {one!r:.60}", hint='write Condition("Ready", True, "InSync", "words")'
            )
    if len(found) > CONDITIONS_MAX:
        raise InvalidArgument(f"conditions= has {len(found)} entries", hint=f"give at most {CONDITIONS_MAX}")
    names = [one.type for one in found]
    if len(set(names)) < len(names):
        raise InvalidArgument(f"conditions= says {max(names, key=names.count)!r} twice", hint="say each once")
    return found


def _finalizers(given: Iterable[str]) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(dict.fromkeys(given))
    for name in found:
        if not isinstance(name, str) or not 1 <= len(name) <= NAME_CHARS_MAX:
            raise InvalidArgument(f"finalizers= has {name!r:.60}", hint="give short texts")
    if len(found) > FINALIZERS_MAX:
        raise InvalidArgument(f"finalizers= has {len(found)} names", hint=f"give at most {FINALIZERS_MAX}")
    return found
