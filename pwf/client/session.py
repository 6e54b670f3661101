"""The session of an agent, on anyio: attached, with turns and submissions, over connections that come and go.

Each new connection attaches the session again and reports what it has, before anything else is said on it. When another
client has attached the same session, every call raises `ClaimLost`, and this one attaches it no more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from pwf.client.aio import Client, connected
from pwf.client.core import CallReply, Opened, Opening
from pwf.client.starting import autostart_allowed
from pwf.client.streams import SessionStream
from pwf.errors import ClaimLost, PwfError
from pwf.places import Places, places
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import SubmitPayload, Submitted
from pwf.protocol.replies import AssistantPayload, RequestUpdated, UpdatePayload
from pwf.protocol.sessions import (
    BRANCH_MAX,
    AttachPayload,
    MessageView,
    ReportPayload,
    SessionAttached,
    SessionRef,
    SessionView,
    Standing,
    TurnPayload,
)
from pwf.protocol.transcripts import SEGMENT, Recorded, RecordedEntry, RecordPayload
from pwf.values import canonical


class SessionClient(Client):
    """A client whose connections begin with what a session says of itself."""

    def session_view(self) -> SessionStream:
        """What there is for the session that this client has attached, without end."""
        return SessionStream(self._core.subscribe("session"), self._next, self._stop)

    def open_with(self, opening: Opening, opened: Opened) -> None:
        """What every further connection begins with, before anything else, and who hears the answers."""
        self._core.open_with(opening, opened)

    @property
    def is_lost(self) -> bool:
        """Whether the daemon is gone for good."""
        return self._failed is not None

    def new_id(self) -> str:
        """An id that nobody else has."""
        return self._core.ids.new()


class Step:
    """One turn about one message: what the model is asked for, and the way to hand it in."""

    def __init__(self, session: Session, view: SessionView, message: MessageView) -> None:
        self._session = session
        self.message = message
        self.request = (
            view.request if view.request and view.request.request_id == message.request_id else None
        )

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of what a step asks for."""
        return None if self.request is None else self.request.schema

    async def prompt(self) -> str:
        """What the model is to read."""
        told = self.message.text
        if self.message.kind == "follow_up" and told is not None and told.json is not None:
            return str(msgspec.json.decode(told.json))
        if self.request is None:
            return _told(self.message)
        text = await self._session.client.read_value(self.message.run_id, self.request.prompt)
        prompt = msgspec.json.decode(text)
        words = prompt if isinstance(prompt, str) else text.decode()
        before = self.request.submission
        why = self.message.why
        if why is None and before is not None and before.status == "rejected":
            why = before.reason
        if before is not None and before.status == "validating":
            words += "\n\nWhat was submitted is still being judged. Submit the same again for the verdict."
        elif why is not None:
            words += f"\n\nWhat was submitted before was rejected: {why}"
        elif self.message.reason == "reminder":
            words += "\n\nNothing was submitted for this yet. Submit it now."
        return words

    async def submit(self, value: object) -> Submitted:
        """Hand in what the step is to give. Raises `InvalidAnswer` where its type is wrong."""
        assert self.request is not None, "only a step takes a submission"
        return await self._session.submit(
            self.request.request_id,
            value,
            revision=self.message.request_revision,
            reply=REQUESTS[self.request.kind].reply,
        )

    async def update(self, data: object, *, kind: str = "progress", key: str = "work") -> RequestUpdated:
        """Say how the work goes: people see it with the run. It replaces what was said under this kind and key."""
        assert self.request is not None, "only a step takes an update"
        payload = UpdatePayload(
            request_id=self.request.request_id,
            data=msgspec.Raw(canonical(data, what="data")),
            kind=kind,
            key=key,
            revision=self.message.request_revision,
        )
        result: RequestUpdated = await self._session.call("request.update", payload)
        return result


Act = Callable[[Step], Awaitable[None]]


class Session:
    """Made by `open_session`. `branch`: ids of the messages that the conversation has."""

    def __init__(
        self,
        client: SessionClient,
        session_id: str,
        name: str,
        branch: Iterable[str],
        host_pid: int | None = None,
    ) -> None:
        self.client = client
        self.session_id = session_id
        self.epoch = 0
        self.branch = list(branch)
        self._name = name
        self._host_pid = host_pid
        self._turn: str | None = None  # that goes on
        self._about = ""  # the message that it is about
        self._handed_in: str | None = None  # the request that a submission of ours may have settled
        self._stream: SessionStream
        self._refused: PwfError | None = None
        self._recorded: dict[tuple[str, str], int] = {}  # what the next entry's number is, by run and segment
        self._recording: dict[tuple[str, str], anyio.Lock] = {}  # whoever records there: one after another

    async def call(self, operation: str, payload: msgspec.Struct, *, key: str | None = None) -> Any:
        """An operation for the session. `ClaimLost` once another client has attached it."""
        if self._refused is not None:
            raise self._refused
        try:
            return await self.client.call(operation, payload, key=key)
        except ClaimLost as error:
            self._refused = error
            raise

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be said for the session here: another client has it, or the daemon is gone."""
        return self._refused is not None or self.client.is_lost

    async def view(self) -> SessionView:
        """What there is for the session now."""
        view: SessionView = await self.call("session.view", SessionRef())
        return view

    async def submit(
        self,
        request_id: str,
        value: object,
        *,
        revision: int | None = None,
        reply: bool = False,
        key: str | None = None,
    ) -> Submitted:
        """Hand in what a request asks for. `reply`: it asks for words, as they were shown."""
        operation: str
        payload: SubmitPayload | AssistantPayload
        if reply and isinstance(value, str):
            operation = "request.assistant"
            payload = AssistantPayload(request_id=request_id, text=value, revision=revision)
        else:
            operation = "request.submit"
            raw = msgspec.Raw(canonical(value, what="value"))
            payload = SubmitPayload(request_id=request_id, value=raw, revision=revision)
        self._handed_in = request_id  # before it is: the turn that settles it goes on to its own end
        result: Submitted | None = None
        try:
            result = await self.call(operation, payload, key=key)
            assert result is not None, "a call gives its result"
            return result
        finally:
            if result is None or result.verdict == "rejected":
                self._handed_in = None

    async def report(self, *, input_pending: bool = False) -> SessionView:
        """Say what the conversation has, and whether a turn goes on."""
        view: SessionView = await self.call("session.report", self._report(input_pending))
        return view

    async def turn(self, turn_id: str, message_id: str, state: str) -> Standing:
        """Report a turn: `started`, `ended` or `aborted`. What it counts for."""
        said = TurnPayload(turn_id=turn_id, message_id=message_id, state=state)  # type: ignore[arg-type]
        reported = await self.call("session.turn", said)
        standing: Standing = reported.standing
        return standing

    async def record(self, run_id: str, *entries: tuple[str, object], segment: str = SEGMENT) -> Recorded:
        """Keep entries of the conversation about a run, for replay: (kind, data) each, behind those that are there.

        Several tasks may record at once: what one call keeps stands together.
        """
        new = tuple(
            RecordedEntry(kind=kind, data=msgspec.Raw(canonical(data, what="data"))) for kind, data in entries
        )
        where = (run_id, segment)
        async with self._recording.setdefault(where, anyio.Lock()):
            at = self._recorded.pop(where, None)  # after a refusal the daemon is asked again
            if at is None:
                known = await self.call("session.record", RecordPayload(run_id=run_id, segment=segment))
                at = known.following
            payload = RecordPayload(run_id=run_id, segment=segment, at=at, entries=new)
            recorded: Recorded = await self.call("session.record", payload)
            self._recorded[where] = recorded.following
            return recorded

    async def news(self) -> None:
        """Wait until there is something else for the session than when this was asked last."""
        await anext(self._stream)

    async def begin(self, message_id: str) -> bool:
        """Begin a turn about a message, which the conversation has from now on. Whether it counts."""
        turn_id = self._turn = self.client.new_id()
        self._about = message_id
        self.branch.append(message_id)
        return await self.turn(turn_id, message_id, "started") == "active"

    async def end(self, state: str) -> None:
        """End the turn that goes on: `ended` or `aborted`."""
        turn_id, self._turn = self._turn, None
        if turn_id is not None:
            await self.turn(turn_id, self._about, state)

    async def lose(self) -> None:
        """Give the turn up, without a word on how it ended: its message comes again."""
        self._turn = None
        await self.report()

    async def serve(self, act: Act, notice: Act | None = None) -> None:
        """Have `act` do a turn for each message that is to start one, for ever; `notice` gets the others.

        A turn that counts for nothing any more is cancelled, and reported as aborted.
        """
        while True:
            view = await self.view()
            message = view.message
            if message is None:
                await anext(self._stream)
            elif message.status != "pending":
                await self.report()  # what an earlier process of this agent has begun: no turn of it goes on
            elif message.starts_turn:
                await self._take_turn(act, Step(self, view, message))
            else:
                if notice is not None:
                    await notice(Step(self, view, message))
                self.branch.append(message.message_id)
                await self.report()

    # --- inside ---------------------------------------------------------------------------------------------

    async def _take_turn(self, act: Act, step: Step) -> None:
        state = "aborted"
        try:
            if await self.begin(step.message.message_id) and await self._act(act, step):
                state = "ended"
        except BaseException:
            self._turn = None  # what becomes of it, the next report says
            raise
        await self.end(state)

    async def _act(self, act: Act, step: Step) -> bool:
        """Whether the turn came to its end, and was not cancelled since it counts for nothing any more."""
        done = False
        refused: PwfError | None = None
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                nonlocal refused
                try:
                    async for _ in self._stream:  # which may be behind: only a look is as new as the turn
                        if self._is_void(await self.view(), step.message):
                            break
                except PwfError as error:
                    refused = error
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            await act(step)
            done = True
            tasks.cancel_scope.cancel()
        if refused is not None:
            raise refused
        return done

    def _is_void(self, view: SessionView, message: MessageView) -> bool:
        """Whether the turn about a message counts for nothing any more, and has not settled it by itself."""
        now = view.message
        if not view.reported:  # the connection is new
            return False
        if now is None or now.message_id != message.message_id or now.status == "cancelled":
            return True
        return self._handed_in != message.request_id and not asks(view, message)

    def _report(self, input_pending: bool = False) -> ReportPayload:
        return ReportPayload(
            branch=tuple(self.branch[-BRANCH_MAX:]),
            idle=self._turn is None,
            input_pending=input_pending,
            turn=self._turn,
        )

    def _opening(self) -> list[tuple[str, msgspec.Struct]]:
        """What each connection begins with."""
        if self._refused is not None:
            return []
        return [("session.attach", self._attach()), ("session.report", self._report())]

    def _attach(self) -> AttachPayload:
        return AttachPayload(session_id=self.session_id, client=self._name, host_pid=self._host_pid)

    def _opened(self, reply: CallReply | PwfError) -> None:
        if isinstance(reply, PwfError):
            self._refused = reply
        elif isinstance(reply.result, SessionAttached):
            self.epoch = reply.result.epoch
        elif isinstance(reply.result, SessionView) and reply.result.epoch > self.epoch:
            self._refused = ClaimLost(f"session {self.session_id!r} was attached by another connection")


def asks(view: SessionView, message: MessageView) -> bool:
    """Whether what a message is about is still open. A request that was settled meanwhile leaves its message `sent`."""
    return message.request_id is None or (
        view.request is not None and view.request.request_id == message.request_id
    )


def _told(message: MessageView) -> str:
    """A message that is no step: how a run ended, as data."""
    body = message.text if message.end is None else message.end
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()


@asynccontextmanager
async def open_session(
    session_id: str,
    *,
    name: str = "",
    branch: Iterable[str] = (),
    host_pid: int | None = None,
    at: Places | None = None,
    autostart: bool | None = None,
) -> AsyncIterator[Session]:
    """A session, attached for the length of an `async with` block. `branch`: what its conversation has already.
    `host_pid`: see `AttachPayload`.
    """
    allowed = autostart_allowed() if autostart is None else autostart
    found = SessionClient(places() if at is None else at, autostart=allowed, stays=True)
    async with connected(found) as client:
        session = Session(client, session_id, name, branch, host_pid)
        attached = await client.call("session.attach", session._attach())
        session.epoch = attached.epoch
        client.open_with(session._opening, session._opened)
        await session.report()
        async with client.session_view() as stream:
            session._stream = stream
            yield session
