"""The blocking client: one Unix socket, one thread, no event loop. The command line uses it.

A lost connection is made again, with the daemon started if need be, and what has no answer is sent again
under its key; so a daemon that is killed and restarted in the middle of a call is seen as a pause. Not safe
to share between threads.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, TypeVar, Unpack

import msgspec

from pwf.client.asking import (
    Asking,
    ForkOptions,
    ask_all,
    decoded,
    fork_payload,
    history,
    listed,
    output_value,
)
from pwf.client.backoff import delay_s
from pwf.client.content import ValueReader, inline_bytes
from pwf.client.core import Answered, Broken, CallReply, ClientCore, More, Subscription
from pwf.client.deciding import decide_payload
from pwf.client.starting import autostart_allowed, connect_or_start
from pwf.client.uploads import FORGETS, SENT_MAX, large_values, uploading
from pwf.client.version import version
from pwf.errors import ContentWanted, DaemonUnreachable, PwfError, Unavailable, VariablesWanted
from pwf.places import Places, places
from pwf.protocol import operations
from pwf.protocol.decisions import DecisionView
from pwf.protocol.operations import (
    LIST_PAGE,
    LIST_PAGE_MAX,
    AnswerPayload,
    CancelPayload,
    PausePayload,
    ReadContent,
    RequestList,
    RequestListPayload,
    RunChanged,
    RunListPayload,
    RunStarted,
    StartPayload,
    SubmitPayload,
    ViewName,
    WaitPayload,
    WaitResult,
)
from pwf.protocol.resources import ResourceListPayload, ResourceRef
from pwf.protocol.runner import Value
from pwf.protocol.views import ENDED, EventView, RequestView, RunSummary, RunView, Status
from pwf.values import canonical

T = TypeVar("T")

READ_BYTES = 256 * 1024
GREETINGS_MAX = 3
CALL_S_MAX = 120.0
RECONNECT_S_MAX = 30.0


class SyncClient:
    """A connection to the daemon. Use it as a context manager, or call `open` and `close`."""

    def __init__(
        self,
        at: Places | None = None,
        *,
        autostart: bool | None = None,
        reconnect: bool = True,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        """`tell` gets what a person should know, in a sentence."""
        self.places = places() if at is None else at
        self._autostart = autostart_allowed() if autostart is None else autostart
        self._reconnects = reconnect
        self._tell = tell
        self._core = ClientCore(version())
        self._socket: socket.socket | None = None
        self._answers: dict[str, CallReply | PwfError] = {}
        self._wanted: set[str] = set()

    def __enter__(self) -> SyncClient:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Connect, unless connected; starts the daemon if allowed. Raises `DaemonUnreachable`, `HomeRefused`,
        `ProtocolError`.
        """
        if self._socket is not None:
            return
        for _ in range(GREETINGS_MAX):  # it may be stopping, or be killed, at this very moment
            self._socket = connect_or_start(self.places, autostart=self._autostart)
            if self._greet():
                self._tell_of_stop()
                return
            self.close()
        raise DaemonUnreachable("the daemon closed the connection at once", hint="pwf doctor")

    def _tell_of_stop(self) -> None:
        """What is asked for now is done or stored, but nobody goes on with it by himself."""
        if self._tell is not None and self._autostart and self.is_stopping:
            self._tell(
                f"the daemon (pid {self.pid}) is stopping; what is left to do goes on after:  pwf start"
            )
            self._tell = None

    def _greet(self) -> bool:
        """Read the greeting that `try_connect` has looked at, and only then send ours and what waits; False when the
        connection was lost over it.
        """
        self._core.connected()
        while self._core.hello is None:
            if not self._receive(None):
                return False
        return True

    def close(self) -> None:
        """Close the connection. Runs go on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def fileno(self) -> int:
        """The socket's descriptor, to be waited on together with others; -1 while not connected."""
        return -1 if self._socket is None else self._socket.fileno()

    @property
    def pid(self) -> int:
        """The daemon's process id, as it said in its greeting."""
        return 0 if self._core.hello is None else self._core.hello.pid

    @property
    def is_stopping(self) -> bool:
        """Whether it was told to stop, as it said in its greeting."""
        return self._core.hello is not None and self._core.hello.stopping

    # --- calls ----------------------------------------------------------------------------------------------

    def call(
        self,
        operation: str,
        payload: msgspec.Struct | None = None,
        *,
        timeout_s: float | None = CALL_S_MAX,
        **more: Unpack[More],
    ) -> Any:
        """One operation; returns its result struct (`OPERATIONS[operation].result`). `more`: see `More`.

        Raises the `pwf.errors` class of a refusal, and `Unavailable` after `timeout_s` (None waits for ever).
        """
        return self.exchange(operation, payload, timeout_s=timeout_s, **more).result

    def exchange(
        self,
        operation: str,
        payload: msgspec.Struct | None = None,
        *,
        timeout_s: float | None = CALL_S_MAX,
        **more: Unpack[More],
    ) -> CallReply:
        """Like `call`, with outcome, revision and receipt. What is too large for a request is sent before it."""
        large = large_values(payload)
        if large is None:
            return self._exchange(operation, payload, timeout_s, more)
        more = large.more(more, self._core.ids.token())
        for _ in range(SENT_MAX):
            self._all(uploading(large))
            with suppress(ContentWanted):
                return self._exchange(operation, large.payload, timeout_s, more)
        raise ContentWanted(FORGETS)

    def _exchange(
        self, operation: str, payload: msgspec.Struct | None, timeout_s: float | None, more: More
    ) -> CallReply:
        request_id = self._core.request(operation, payload, **more)
        self._wanted.add(request_id)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while request_id not in self._answers:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise Unavailable(f"no answer to {operation} within {timeout_s:g} s", hint="pwf doctor")
                self._pump(left)
            answer = self._answers.pop(request_id)
        finally:
            self._wanted.discard(request_id)
            self._core.forget(request_id)
        if isinstance(answer, PwfError):
            raise answer
        return answer

    def start(
        self,
        workflow: str,
        input: object = None,
        *,
        run_id: str | None = None,
        key: str | None = None,
        at_ms: int | None = None,
        environment: Mapping[str, str] | None = None,
        agent: str | None = None,
        max_steps: int | None = None,
    ) -> RunStarted:
        """Start a workflow by name or path, seen from the working folder. `input` is any JSON value or
        struct. `environment`: variables for the run, beside those that are passed on from here. `agent`: who does
        the steps of agents. `max_steps`: in place of the workflow's.
        """
        from pwf.client.origin import origin  # reads the configuration, which other calls don't need

        payload = StartPayload(
            workflow=workflow,
            origin=origin(self.places, workflow, more=environment),
            input=msgspec.Raw(canonical(input, what="input")),
            run_id=run_id,
            at_ms=at_ms,
            agent=agent,
            max_steps=max_steps,
        )
        started: RunStarted = self.begin(payload, key=key).result
        return started

    def begin(self, payload: StartPayload, *, key: str | None = None) -> CallReply:
        """`run.start`, also with the variables that the workflow declares, as far as they are set here."""
        try:
            return self.exchange("run.start", payload, key=key)
        except VariablesWanted as wanted:
            from pwf.client.origin import with_wanted

            return self.exchange("run.start", with_wanted(payload, wanted), key=key)

    def wait(
        self,
        run_id: str,
        *,
        until: Literal["ended", "parked"] = "ended",
        timeout_s: float | None = None,
    ) -> WaitResult:
        """Wait until the run has ended, or needs a person (`parked`). `done` is False when the time ran
        out.
        """
        timeout_ms = None if timeout_s is None else max(0, int(timeout_s * 1000))
        payload = WaitPayload(until=until, timeout_ms=timeout_ms)
        patience_s = None if timeout_s is None else timeout_s + CALL_S_MAX
        result: WaitResult = self.call("run.wait", payload, run_id=run_id, timeout_s=patience_s)
        return result

    def answer(self, request_id: str, answer: object) -> operations.Answered:
        """Answer an open request with a JSON value. Raises `InvalidAnswer` when its type is wrong."""
        payload = AnswerPayload(request_id=request_id, answer=msgspec.Raw(canonical(answer, what="answer")))
        result: operations.Answered = self.call("request.answer", payload)
        return result

    def submit(self, request_id: str, value: object, *, revision: int | None = None) -> operations.Submitted:
        """Give what an agent was asked for, as a person. `revision`: only if the request is still at it."""
        payload = SubmitPayload(
            request_id=request_id, value=msgspec.Raw(canonical(value, what="value")), revision=revision
        )
        result: operations.Submitted = self.call("request.submit", payload)
        return result

    def decide(
        self, seen: DecisionView, choice: str, text: str | None = None, *, digest: str | None = None
    ) -> CallReply:
        """Decide, as a person, what was seen. `digest`: of what was seen, where that was another time."""
        return self.exchange("decision.answer", decide_payload(seen, choice, text, digest))

    def read_value(self, run_id: str, value: Value) -> bytes:
        """The JSON text of a value, fetched by digest and verified where it is large."""
        inline = inline_bytes(value)
        if inline is not None:
            return inline
        reader = ValueReader(value)
        while not reader.done:
            reader.add(
                self.call(
                    "content.read", ReadContent(digest=reader.digest, offset=reader.offset), run_id=run_id
                )
            )
        return reader.data()

    # --- the same in both clients ---------------------------------------------------------------------------

    def list(
        self,
        *,
        statuses: Sequence[Status] = (),
        workflow: str | None = None,
        since_ms: int | None = None,
        title: str | None = None,
        limit: int = LIST_PAGE,
    ) -> tuple[RunSummary, ...]:
        """Runs, newest first: of these statuses, of this workflow, made at `since_ms` or later, with this text in
        their title; at most `limit`.
        """
        return self._all(listed(statuses, workflow, since_ms, title, limit))

    def show(self, run_id: str) -> RunView:
        """A run with its graph, its newest steps, effects and output, as it is now."""
        view: RunView = self.call("run.view", run_id=run_id)
        return view

    def events(self, run_id: str, *, after_revision: int = 0) -> tuple[EventView, ...]:
        """The run's history after a revision, oldest first."""
        return self._all(history(run_id, after_revision))

    def output(self, run_id: str, node: str | None = None, *, type: Any = Any) -> Any:
        """What the run gave, or a node's newest visit that completed; as this type, else as plain JSON values.

        Raises `NotFound` where there is none, and `msgspec.ValidationError` where it does not have the type.
        """
        name, value = self._all(output_value(run_id, node))
        return decoded(self.read_value(name, value), type)

    def requests(self) -> tuple[RequestView, ...]:
        """Open requests, oldest first."""
        found: RequestList = self.call("request.list", RequestListPayload(limit=LIST_PAGE_MAX))
        return found.requests

    def cancel(self, run_id: str, reason: str | None = None) -> RunChanged:
        """End a run. Raises `Rejected` for one that has ended otherwise."""
        changed: RunChanged = self.call("run.cancel", CancelPayload(reason=reason), run_id=run_id)
        return changed

    def pause(self, run_id: str, *, now: bool = False) -> RunChanged:
        """Hold a run at its next boundary; `now` stops the running step."""
        changed: RunChanged = self.call("run.pause", PausePayload(now=now), run_id=run_id)
        return changed

    def resume(self, run_id: str) -> RunChanged:
        """Let a held run go on."""
        changed: RunChanged = self.call("run.resume", run_id=run_id)
        return changed

    def restart(self, run_id: str, *, revision: int | None = None, key: str | None = None) -> RunStarted:
        """Start an ended run anew, from its input and with the present code; only at this revision of it, if given."""
        if revision is None:
            seen = (self.call("run.status", run_id=run_id)).summary
            run_id, revision = seen.run_id, seen.revision
        started: RunStarted = self.call("run.restart", run_id=run_id, expected_revision=revision, key=key)
        return started

    def fork(
        self, run_id: str, node: str | None = None, *, key: str | None = None, **options: Unpack[ForkOptions]
    ) -> RunStarted:
        """Go on from a node of an ended run, in a new run that takes over what came before it."""
        started: RunStarted = self.call("run.fork", fork_payload(node, options), run_id=run_id, key=key)
        return started

    def retry(self, run_id: str, *, key: str | None = None, **options: Unpack[ForkOptions]) -> RunStarted:
        """Go on from where a run failed, in a new run, with the present code unless `code="stored"`."""
        return self.fork(run_id, key=key, **options)

    def _all(self, asking: Asking[T]) -> T:
        return ask_all(
            asking, lambda operation, payload, run_id: self.call(operation, payload, run_id=run_id)
        )

    # --- views ----------------------------------------------------------------------------------------------

    def subscribe(
        self,
        view: ViewName,
        *,
        run_id: str | None = None,
        query: RunListPayload | None = None,
        about: ResourceRef | ResourceListPayload | None = None,
    ) -> Subscription:
        """Follow a view; `next_news` waits for its states."""
        subscription = self._core.subscribe(view, run_id=run_id, query=query, about=about)
        self._flush()
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop following."""
        self._core.unsubscribe(subscription)
        self._flush()

    def next_news(self, subscription: Subscription, seen: int, timeout_s: float | None = None) -> bool:
        """Wait for a state newer than the `seen`-th (`Subscription.news`). False when the time ran out or
        it ended.

        Raises the error with which the subscription ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while subscription.news <= seen and not subscription.ended:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if left == 0.0:
                break
            self._pump(left)
        if subscription.error is not None:
            raise subscription.error
        return subscription.news > seen

    def view(self, run_id: str) -> Iterator[RunView]:
        """The run's states from now on, the newest only where several came at once; ends with the run."""
        subscription = self.subscribe("run", run_id=run_id)
        seen = 0
        try:
            while self.next_news(subscription, seen):
                seen = subscription.news
                value = subscription.value()
                assert isinstance(value, RunView)
                yield value
                if value.summary.status in ENDED:
                    return
        finally:
            if self._socket is not None:
                self.unsubscribe(subscription)

    def poll(self, timeout_s: float | None = 0.0) -> None:
        """Take in what has arrived, waiting at most `timeout_s` for something."""
        self._pump(timeout_s)

    # --- inside ---------------------------------------------------------------------------------------------

    def _pump(self, timeout_s: float | None) -> None:
        if self._socket is None:
            raise DaemonUnreachable("the client is closed")
        self._flush()
        if not self._receive(timeout_s):
            self._reconnect()

    def _flush(self) -> None:
        data = self._core.take_outgoing()
        if data and self._socket is not None:
            try:
                self._socket.sendall(data)
            except OSError:
                return  # the reading side notices, and the new connection sends it again

    def _receive(self, timeout_s: float | None) -> bool:
        """Wait for bytes and take them in. False when the connection is gone."""
        assert self._socket is not None
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        if not poll.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))):
            return True
        try:
            data = self._socket.recv(READ_BYTES)
        except OSError:
            return False
        if not data:
            return False
        for happening in self._core.receive(data):
            if isinstance(happening, Answered):
                if happening.request_id in self._wanted:
                    self._answers[happening.request_id] = happening.reply
            elif isinstance(happening, Broken):
                self.close()
                self._core.fail_all(happening.error)
                raise happening.error
        self._flush()
        return True

    def _reconnect(self) -> None:
        self.close()
        if not self._reconnects:
            raise DaemonUnreachable("the daemon closed the connection", hint="pwf status")
        import random  # only here, and it takes its time to load

        deadline = time.monotonic() + RECONNECT_S_MAX
        failures = 0
        while True:
            failures += 1
            time.sleep(min(delay_s(failures, random.random), max(0.0, deadline - time.monotonic())))
            try:
                self.open()
                return
            except DaemonUnreachable:
                self.close()
                if time.monotonic() >= deadline:
                    raise


def connect_sync(at: Places | None = None, *, autostart: bool | None = None) -> SyncClient:
    """A connected blocking client; close it, or use it in a `with` statement."""
    client = SyncClient(at, autostart=autostart)
    client.open()
    return client
