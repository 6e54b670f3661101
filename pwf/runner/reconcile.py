"""One reconcile in a process of its own: from the daemon's `Reconcile` to `Reconciled` and `Leaving`.

Promises: nothing of the manager runs before the process bears the resource's marker; what the manager asks of the
daemon is answered when it is on disk; one result is said, whatever the manager does; a process whose daemon is gone
ends itself with all its descendants.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import msgspec

from pwf.errors import Conflict, EffectUnknown, InvalidArgument, ProtocolError, PwfError, Rejected, by_code
from pwf.protocol.crashlab import LAB_VARIABLE
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.graph import EffectMode
from pwf.protocol.masking import Masks
from pwf.protocol.reconcile import (
    CancelRun,
    ChangeChild,
    ChildAnswer,
    ChildWord,
    EnsureRun,
    QueueForChild,
    Reconcile,
    Reconciled,
    RemoveForChild,
    SaidEvent,
)
from pwf.protocol.resources import ChildView
from pwf.protocol.runner import (
    PART_CHARS_MAX,
    REF_CHARS_MAX,
    RUNNER_FRAME_BYTES_MAX,
    BeginPart,
    Leaving,
    PartAnswer,
    SettlePart,
    StepError,
    Value,
    effect_key,
    encode_line,
)
from pwf.runner.base import descendants, limits
from pwf.runner.base.entering import enter
from pwf.runner.base.failure import bounded, error_without, leaves, step_error
from pwf.runner.base.printed import Printed
from pwf.runner.base.secrets import Secrets
from pwf.runner.base.wire import RECEIVE_BYTES, DaemonGone, ValueReader
from pwf.runner.hangup import HangUpWatcher, end_process
from pwf.values import digest
from pwf.watching.marks import mark_of_tree
from pwf.workflow.reconcile_port import Reserved
from pwf.workflow.reconciling import reconcile_once
from pwf.workflow.resource_manager import ResourceManager

RECONCILES_KEPT = 20  # of a resource, that have printed something: what each said is kept
ERROR_BYTES_MAX = 16 * 1024  # of what is kept of an effect's failure

_told = msgspec.json.Decoder(Reconcile)
_child = msgspec.json.Decoder(ChildAnswer)


def run_reconcile(
    messages: socket.socket,
    values: socket.socket,
    ends: tuple[int, int],
    manager: ResourceManager[Any, Any],
    become: Callable[[str], None],
) -> None:
    """Reconcile once. Called once in a process; returns when the result is said, or nobody has told it to begin."""
    try:
        told = _receive(messages)
    except DaemonGone:
        return
    become(told.marker)
    printed = Printed(ends)
    watcher = HangUpWatcher(messages, end_process, printed=printed)
    try:
        printed.enter(told.output_folder, told.output_bytes_max)
        printed.keep_newest(RECONCILES_KEPT - 1)
        printed.begin(told.lease_generation)
        enter(told.root, told.memory_bytes_max)
        reach = _boundaries(told)
        port = DaemonPort(values, told, reach)
        if told.secrets:
            printed.take_out(port.secrets.masks)
        reach()
        result = _without(_reconcile(told, manager, port), port.secrets.masks)
        printed.end()
        reach()
        with limits.Lifted():
            # What is left of it is ended before its last word, which says so.
            _send(messages, result)
            reach()
            _send(messages, Leaving(childless=descendants.end_all()))
    except DaemonGone:
        end_process()
    finally:
        watcher.stop()


def _boundaries(told: Reconcile) -> Callable[[], None]:
    """What is called at each boundary: nothing, but in a crash lab."""
    if LAB_VARIABLE not in os.environ:
        return lambda: None
    from pwf.runner.lab.reconcile import reach_of  # `pwf crashlab` only

    return reach_of(told)


def _receive(messages: socket.socket) -> Reconcile:
    splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
    while True:
        try:
            data = messages.recv(RECEIVE_BYTES)
        except OSError as error:
            raise DaemonGone from error
        if not data:
            raise DaemonGone
        for line in splitter.feed(data):
            try:
                return _told.decode(line)
            except msgspec.MsgspecError as error:
                raise ProtocolError(f"not what a reconcile begins with: {error}") from error


def _send(messages: socket.socket, message: Reconciled | Leaving) -> None:
    try:
        messages.sendall(encode_line([message]))
    except OSError as error:
        raise DaemonGone from error


def _reconcile(told: Reconcile, manager: ResourceManager[Any, Any], port: DaemonPort) -> Reconciled:
    pid = os.getpid()
    events: list[SaidEvent] = []
    try:
        return reconcile_once(
            manager,
            told,
            port,
            read_value=partial(port.fetch, what="a value"),
            run_async=_run_async,
            mark=mark_of_tree,
            told=events,
        )
    except DaemonGone:
        raise
    except BaseException as error:  # noqa: BLE001 - user code: sys.exit ends the reconcile, not the process
        return Reconciled(outcome="failed", error=_error_of(error), events=tuple(events))
    finally:
        if os.getpid() != pid:
            os._exit(1)  # a fork that it made and let return: only one process speaks for it


def _without(result: Reconciled, masks: Masks) -> Reconciled:
    """The result as it may be kept."""
    if not masks:
        return result
    text, replace = masks.text, msgspec.structs.replace
    return replace(
        result,
        status=msgspec.Raw(masks.json(bytes(result.status or b"{}"))),
        conditions=tuple(
            replace(one, reason=text(one.reason), message=text(one.message)) for one in result.conditions
        ),
        events=tuple(
            replace(
                one,
                message=text(one.message),
                data=None if one.data is None else msgspec.Raw(masks.json(bytes(one.data))),
            )
            for one in result.events
        ),
        error=None if result.error is None else error_without(result.error, masks),
    )


def _error_of(error: BaseException) -> StepError:
    """What the function raised. An effect that nobody can tell about counts before all else, also in a group."""
    for leaf in leaves(error):
        if isinstance(leaf, EffectUnknown):
            return StepError(code="effect_ambiguous", message=leaf.message, node="reconcile")
    code = error.code if isinstance(error, PwfError) else "node_failed"
    return step_error(error, "reconcile", code=code)


def _run_async(fn: Callable[..., Any], *arguments: Any) -> object:
    import trio

    return trio.run(fn, *arguments)


class DaemonPort(ValueReader):
    """What a manager may ask of the daemon: over the values socket, one question at a time."""

    def __init__(
        self, connection: socket.socket, told: Reconcile, reach: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(connection)
        self._told, self._reach = told, reach
        self.secrets = Secrets(self, told.secrets, of="ResourceManager")

    def _exchanged(self, message: msgspec.Struct) -> bytes:
        """A crash lab's boundaries lie before what is asked, and behind its answer."""
        self._reach()
        line = super()._exchanged(message)
        self._reach()
        return line

    def read_secret(self, name: str) -> str:
        """The value of a secret that the manager declares."""
        return self.secrets.get(name)

    def ensure_child(self, *, request_key: str, workflow: str, input: bytes) -> ChildView:
        """The child run that was started under this key; it is started where there is none."""
        kept = msgspec.Raw(self.secrets.masks.json(input))
        question = EnsureRun(request_key=request_key, workflow=workflow, input=kept)
        child = self._ask_child(question).child
        assert child is not None, "there is a child, or an error"
        return child

    def cancel_child(self, *, request_key: str) -> ChildView | None:
        """Ask for the end of the child run under this key; None where there is none."""
        return self._ask_child(CancelRun(request_key=request_key)).child

    def change_child(self, *, request_key: str, key: str, patch: bytes, scope: str | None) -> int:
        """Change settings of a child, once under `key`; the number of the change."""
        kept = msgspec.Raw(self.secrets.masks.json(patch))
        answer = self._ask_child(ChangeChild(request_key=request_key, key=key, patch=kept, scope=scope))
        assert answer.change is not None, "it was changed, or there is an error"
        return answer.change

    def queue_for_child(self, *, request_key: str, key: str, text: str) -> str:
        """Queue a follow-up for a child's session, once under `key`; its id."""
        text = self.secrets.masks.text(text)
        answer = self._ask_child(QueueForChild(request_key=request_key, key=key, text=text))
        assert answer.follow_up is not None, "it was queued, or there is an error"
        return answer.follow_up

    def remove_for_child(self, *, request_key: str, follow_up: str) -> None:
        """Remove a follow-up that was queued here."""
        self._ask_child(RemoveForChild(request_key=request_key, follow_up=follow_up))

    def reserve_effect(
        self, *, key: str, kind: str, request: bytes, mode: EffectMode, observable: bool
    ) -> Reserved:
        """Commit that the effect is about to be applied, or say what became of it before."""
        if len(key) > PART_CHARS_MAX:
            raise InvalidArgument(
                f"the key of an effect has {len(key)} characters, more than {PART_CHARS_MAX}"
            )
        request = self.secrets.masks.json(request)
        value = Value(json=msgspec.Raw(request), size=len(request))
        begin = BeginPart(
            attempt=self._told.lease_generation,
            part=key,
            kind=kind,
            mode=mode,
            request=value,
            observable=observable,
        )
        answer = self.ask(begin)
        whole_key = effect_key(self._told.uid, "reconcile", 1, key)
        match answer.verdict:
            case "apply" | "observe":
                return Reserved(answer.verdict, whole_key)
            case "applied":
                if answer.error is not None:
                    return Reserved("applied", whole_key, error=answer.error.message)
                output = b"null" if answer.output is None else self.fetch(answer.output, f"effect {key!r}")
                return Reserved("applied", whole_key, output)
            case "abandoned":
                return Reserved("abandoned", whole_key)
            case "conflict":
                raise Conflict(
                    f"effect {key!r} was made for another request: its fingerprint is {answer.fingerprint}, this "
                    f"one's is {digest(request)}",
                    hint="let the key name the occasion: a counter in the status, say",
                )
            case "unknown":
                return Reserved("ambiguous", whole_key)
        raise _refusal(answer)

    def settle_effect(
        self,
        *,
        key: str,
        settled: Literal["applied", "rejected", "failed", "unknown"],
        output: bytes | None = None,
        ref: str | None = None,
        error: str | None = None,
    ) -> None:
        """Commit what became of it."""
        masks = self.secrets.masks
        ref = None if ref is None else bounded(masks.text(str(ref)), REF_CHARS_MAX)
        why = None if error is None else bounded(masks.text(error), ERROR_BYTES_MAX)
        output = None if output is None else masks.json(output)
        said = None if why is None else StepError(code="node_failed", message=why, node="reconcile")
        value = None if output is None else Value(json=msgspec.Raw(output), size=len(output))
        settle = SettlePart(
            attempt=self._told.lease_generation, part=key, status=settled, output=value, ref=ref, error=said
        )
        answer = self.ask(settle)
        if answer.verdict != "settled":
            raise _refusal(answer)

    def _ask_child(self, question: EnsureRun | CancelRun | ChildWord) -> ChildAnswer:
        answer = _child.decode(self.exchange(question))
        if answer.code is not None:
            raise by_code(answer.code)(answer.message, hint=answer.hint)
        return answer


def _refusal(answer: PartAnswer) -> Rejected:
    return Rejected(answer.error.message if answer.error is not None else f"it was {answer.verdict}")
