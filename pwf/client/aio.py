"""The asynchronous client, on anyio: it works under trio and asyncio.

One connection carries any number of calls at once. A lost connection is made again with capped, jittered
backoff, the daemon started if need be; what has no answer is sent again under its key, and subscriptions go
on from the last revision seen. A cancelled call is forgotten here; the daemon may have done it all the
same.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Literal, TypeVar, Unpack

import anyio
import anyio.to_thread
import msgspec

from pwf.client.asking import (
    Asking,
    ForkOptions,
    decoded,
    fork_payload,
    history,
    listed,
    output_value,
)
from pwf.client.backoff import delay_s
from pwf.client.connection import Connection, Waiter
from pwf.client.content import ValueReader, inline_bytes
from pwf.client.core import Answered, Broken, CallReply, ClientCore, Happening, More, News, Subscription
from pwf.client.deciding import decide_payload
from pwf.client.origin import origin, with_wanted
from pwf.client.peer import GREETING_S_MAX, dial, serves
from pwf.client.starting import autostart_allowed, connect_or_start, socket_path
from pwf.client.streams import RunsStream, RunStream
from pwf.client.uploads import FORGETS, SENT_MAX, large_values, uploading
from pwf.client.version import version
from pwf.errors import ContentWanted, DaemonUnreachable, PwfError, Unavailable, VariablesWanted
from pwf.places import Places, places
from pwf.protocol import operations
from pwf.protocol.decisions import Decided, DecisionView
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
    WaitPayload,
    WaitResult,
)
from pwf.protocol.runner import Value
from pwf.protocol.views import EventView, RequestView, RunSummary, RunView, Status
from pwf.values import canonical

T = TypeVar("T")
C = TypeVar("C", bound="Client")

READ_BYTES = 256 * 1024
GREETINGS_MAX = 6  # each start of the daemon takes one, too
CALL_S_MAX = 120.0
RECONNECT_S_MAX = 60.0


class Client:
    """Made by `connect()`. All methods may be called from several tasks at once. `stays`: it waits out a stop."""

    def __init__(self, at: Places, *, autostart: bool, stays: bool = False) -> None:
        self.places = at
        self._autostart = autostart
        self._stays, self._stopped = stays, False  # stopped: it said goodbye, and was not seen since
        self._core = ClientCore(version())
        self._waiters: dict[str, Waiter] = {}
        self._news: dict[int, anyio.Event] = {}  # by id() of the live subscription object
        self._to_send = anyio.Event()
        self._failed: PwfError | None = None
        self._lost = anyio.Event()

    # --- calls ----------------------------------------------------------------------------------------------

    async def call(
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
        reply = await self.exchange(operation, payload, timeout_s=timeout_s, **more)
        return reply.result

    async def exchange(
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
            return await self._exchange(operation, payload, timeout_s, more)
        more = large.more(more, self._core.ids.token())
        for _ in range(SENT_MAX):
            await self._all(uploading(large))
            with suppress(ContentWanted):
                return await self._exchange(operation, large.payload, timeout_s, more)
        raise ContentWanted(FORGETS)

    async def _exchange(
        self, operation: str, payload: msgspec.Struct | None, timeout_s: float | None, more: More
    ) -> CallReply:
        if self._failed is not None:
            raise self._failed
        request_id = self._core.request(operation, payload, **more)
        waiter = self._waiters[request_id] = Waiter()
        self._to_send.set()
        try:
            with anyio.move_on_after(timeout_s):
                await waiter.event.wait()
        finally:
            del self._waiters[request_id]
            self._core.forget(request_id)
        if waiter.answer is None:
            raise Unavailable(f"no answer to {operation} within {timeout_s:g} s", hint="pwf doctor")
        if isinstance(waiter.answer, PwfError):
            raise waiter.answer
        return waiter.answer

    async def start(
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
        seen_from = await anyio.to_thread.run_sync(partial(origin, self.places, workflow, more=environment))
        payload = StartPayload(
            workflow=workflow,
            origin=seen_from,
            input=msgspec.Raw(canonical(input, what="input")),
            run_id=run_id,
            at_ms=at_ms,
            agent=agent,
            max_steps=max_steps,
        )
        started: RunStarted = (await self.begin(payload, key=key)).result
        return started

    async def begin(self, payload: StartPayload, *, key: str | None = None) -> CallReply:
        """`run.start`, also with the variables that the workflow declares, as far as they are set here."""
        try:
            return await self.exchange("run.start", payload, key=key)
        except VariablesWanted as wanted:
            return await self.exchange("run.start", with_wanted(payload, wanted), key=key)

    async def wait(
        self, run_id: str, *, until: Literal["ended", "parked"] = "ended", timeout_s: float | None = None
    ) -> WaitResult:
        """Wait until the run has ended, or needs a person (`parked`). `done` is False when the time ran
        out.
        """
        timeout_ms = None if timeout_s is None else max(0, int(timeout_s * 1000))
        payload = WaitPayload(until=until, timeout_ms=timeout_ms)
        patience_s = None if timeout_s is None else timeout_s + CALL_S_MAX
        result: WaitResult = await self.call("run.wait", payload, run_id=run_id, timeout_s=patience_s)
        return result

    async def answer(self, request_id: str, answer: object) -> operations.Answered:
        """Answer an open request with a JSON value. Raises `InvalidAnswer` when its type is wrong."""
        payload = AnswerPayload(request_id=request_id, answer=msgspec.Raw(canonical(answer, what="answer")))
        result: operations.Answered = await self.call("request.answer", payload)
        return result

    async def submit(
        self, request_id: str, value: object, *, revision: int | None = None
    ) -> operations.Submitted:
        """Give what an agent was asked for, as a person. `revision`: only if the request is still at it."""
        payload = SubmitPayload(
            request_id=request_id, value=msgspec.Raw(canonical(value, what="value")), revision=revision
        )
        result: operations.Submitted = await self.call("request.submit", payload)
        return result

    async def decide(
        self, seen: DecisionView, choice: str, text: str | None = None, *, digest: str | None = None
    ) -> Decided:
        """Decide, as a person, what was seen. `digest`: of what was seen, where that was another time."""
        result: Decided = await self.call("decision.answer", decide_payload(seen, choice, text, digest))
        return result

    async def read_value(self, run_id: str, value: Value) -> bytes:
        """The JSON text of a value, fetched by digest and verified where it is large."""
        inline = inline_bytes(value)
        if inline is not None:
            return inline
        reader = ValueReader(value)
        while not reader.done:
            wanted = ReadContent(digest=reader.digest, offset=reader.offset)
            reader.add(await self.call("content.read", wanted, run_id=run_id))
        return reader.data()

    # --- the same in both clients ---------------------------------------------------------------------------

    async def list(
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
        return await self._all(listed(statuses, workflow, since_ms, title, limit))

    async def show(self, run_id: str) -> RunView:
        """A run with its graph, its newest steps, effects and output, as it is now."""
        view: RunView = await self.call("run.view", run_id=run_id)
        return view

    async def events(self, run_id: str, *, after_revision: int = 0) -> tuple[EventView, ...]:
        """The run's history after a revision, oldest first."""
        return await self._all(history(run_id, after_revision))

    async def output(self, run_id: str, node: str | None = None, *, type: Any = Any) -> Any:
        """What the run gave, or a node's newest visit that completed; as this type, else as plain JSON values.

        Raises `NotFound` where there is none, and `msgspec.ValidationError` where it does not have the type.
        """
        name, value = await self._all(output_value(run_id, node))
        return decoded(await self.read_value(name, value), type)

    async def requests(self) -> tuple[RequestView, ...]:
        """Open requests, oldest first."""
        found: RequestList = await self.call("request.list", RequestListPayload(limit=LIST_PAGE_MAX))
        return found.requests

    async def cancel(self, run_id: str, reason: str | None = None) -> RunChanged:
        """End a run. Raises `Rejected` for one that has ended otherwise."""
        changed: RunChanged = await self.call("run.cancel", CancelPayload(reason=reason), run_id=run_id)
        return changed

    async def pause(self, run_id: str, *, now: bool = False) -> RunChanged:
        """Hold a run at its next boundary; `now` stops the running step."""
        changed: RunChanged = await self.call("run.pause", PausePayload(now=now), run_id=run_id)
        return changed

    async def resume(self, run_id: str) -> RunChanged:
        """Let a held run go on."""
        changed: RunChanged = await self.call("run.resume", run_id=run_id)
        return changed

    async def restart(
        self, run_id: str, *, revision: int | None = None, key: str | None = None
    ) -> RunStarted:
        """Start an ended run anew, from its input and with the present code; only at this revision of it, if given."""
        if revision is None:
            seen = (await self.call("run.status", run_id=run_id)).summary
            run_id, revision = seen.run_id, seen.revision
        started: RunStarted = await self.call(
            "run.restart", run_id=run_id, expected_revision=revision, key=key
        )
        return started

    async def fork(
        self, run_id: str, node: str | None = None, *, key: str | None = None, **options: Unpack[ForkOptions]
    ) -> RunStarted:
        """Go on from a node of an ended run, in a new run that takes over what came before it."""
        started: RunStarted = await self.call("run.fork", fork_payload(node, options), run_id=run_id, key=key)
        return started

    async def retry(
        self, run_id: str, *, key: str | None = None, **options: Unpack[ForkOptions]
    ) -> RunStarted:
        """Go on from where a run failed, in a new run, with the present code unless `code="stored"`."""
        return await self.fork(run_id, key=key, **options)

    async def _all(self, asking: Asking[T]) -> T:
        try:
            operation, payload, run_id = next(asking)
            while True:
                result = await self.call(operation, payload, run_id=run_id)
                operation, payload, run_id = asking.send(result)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # what the generator returns

    # --- views ----------------------------------------------------------------------------------------------

    def view(self, run_id: str) -> RunStream:
        """The run's states from now on; the stream ends with the run."""
        return RunStream(self._core.subscribe("run", run_id=run_id), self._next, self._stop)

    def runs(self, query: RunListPayload | None = None) -> RunsStream:
        """A list of runs and its changes, without end."""
        return RunsStream(self._core.subscribe("runs", query=query), self._next, self._stop)

    async def lost(self) -> PwfError:
        """Wait until the daemon is gone for good: why. It may come back for a while first."""
        await self._lost.wait()
        assert self._failed is not None, "that is what it waits for"
        return self._failed

    # --- inside ---------------------------------------------------------------------------------------------

    async def _open(self) -> Connection:
        """A connection over which both sides have greeted."""
        for _ in range(GREETINGS_MAX):  # it may be stopping, or be killed, at this very moment
            connected = dial(socket_path(self.places))  # a Unix socket connects at once or not at all
            if connected is None:
                await anyio.to_thread.run_sync(self._start_daemon, abandon_on_cancel=True)
                continue
            stream = Connection(connected)
            if await self._greet(stream):
                return stream
        raise DaemonUnreachable("the daemon closes connections at once", hint="pwf doctor")

    async def _greet(self, stream: Connection) -> bool:
        """Read the daemon's greeting, and only then send ours and what waits. Closed unless True.

        False when the connection was lost over it, or is another home's; then the daemon of ours has been started.
        """
        greeted = False
        try:
            self._core.connected()
            with anyio.fail_after(GREETING_S_MAX):
                while self._core.hello is None:
                    data = await stream.receive(READ_BYTES)
                    if not data:
                        return False
                    self._take(data)
            if not serves(self._core.hello, self.places):
                await anyio.to_thread.run_sync(self._start_daemon, abandon_on_cancel=True)
                return False
            await stream.send(self._core.take_outgoing())
            greeted = True
        except TimeoutError as error:  # before OSError, which it is
            raise DaemonUnreachable("the daemon does not answer", hint="pwf doctor") from error
        except OSError:
            return False
        finally:
            if not greeted:
                stream.close()
        return True

    def _start_daemon(self) -> None:
        """Blocks; runs in a worker thread."""
        connect_or_start(self.places, autostart=self._autostart and not self._stopped).close()

    async def _serve(self, stream: Connection) -> None:
        """Keep the conversation up until the client is closed; a failure for good ends every call with
        its error.
        """
        try:
            while True:
                try:
                    await self._converse(stream)
                except Unavailable:  # it says goodbye: to start another is for who has stopped it
                    if not self._stays:
                        raise
                    self._stopped = True
                stream = await self._reopen()
                self._stopped = False
        except PwfError as error:
            self._failed = error
            self._lost.set()
            self._dispatch(self._core.fail_all(error))

    async def _converse(self, stream: Connection) -> None:
        """Read and write until the connection is lost. Raises what the daemon refuses us with."""
        refusal: PwfError | None = None
        with stream:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, stream)
                try:
                    while data := await stream.receive(READ_BYTES):
                        self._take(data)
                except OSError:
                    pass
                except PwfError as error:
                    refusal = error
                tasks.cancel_scope.cancel()
        if refusal is not None:
            raise refusal

    async def _write(self, stream: Connection) -> None:
        while True:
            data = self._core.take_outgoing()
            if data:
                try:
                    await stream.send(data)
                except OSError:
                    return  # the reading side notices, and the new connection sends it again
                continue
            self._to_send = anyio.Event()
            await self._to_send.wait()

    async def _reopen(self) -> Connection:
        deadline = anyio.current_time() + RECONNECT_S_MAX
        failures = 0
        while True:
            failures += 1
            await anyio.sleep(delay_s(failures, random.random))
            try:
                return await self._open()
            except DaemonUnreachable:
                if not self._stopped and anyio.current_time() >= deadline:
                    raise
            except Unavailable:
                if not self._stays:
                    raise
                self._stopped = True

    def _take(self, data: bytes) -> None:
        self._dispatch(self._core.receive(data))
        self._to_send.set()  # the core may have answered a gap with a new subscription

    def _dispatch(self, happenings: Iterable[Happening]) -> None:
        for happening in happenings:
            if isinstance(happening, Answered):
                waiter = self._waiters.get(happening.request_id)
                if waiter is not None:
                    waiter.answer = happening.reply
                    waiter.event.set()
            elif isinstance(happening, News):
                event = self._news.pop(id(happening.subscription), None)
                if event is not None:
                    event.set()
            elif isinstance(happening, Broken):
                raise happening.error

    async def _next(self, subscription: Subscription, seen: int) -> bool:
        """Wait for a state newer than the `seen`-th; False when the subscription has ended."""
        while subscription.news <= seen and not subscription.ended:
            if self._failed is not None:
                raise self._failed
            self._to_send.set()
            event = self._news.setdefault(id(subscription), anyio.Event())
            await event.wait()
        if subscription.error is not None:
            raise subscription.error
        return subscription.news > seen

    def _stop(self, subscription: Subscription) -> None:
        self._core.unsubscribe(subscription)
        self._news.pop(id(subscription), None)
        self._to_send.set()


@asynccontextmanager
async def connect(at: Places | None = None, *, autostart: bool | None = None) -> AsyncIterator[Client]:
    """A connected client for the length of an `async with` block; the daemon is started when nobody listens.

    Raises `DaemonUnreachable`, `HomeRefused` or `ProtocolError` when that fails.
    """
    allowed = autostart_allowed() if autostart is None else autostart
    async with connected(Client(places() if at is None else at, autostart=allowed)) as client:
        yield client


@asynccontextmanager
async def connected(client: C) -> AsyncIterator[C]:
    """The same for a client that was made, of any class."""
    stream = await client._open()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client._serve, stream)
            yield client
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        # The task group wraps what the caller's own block raised; hand it back as it was.
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
