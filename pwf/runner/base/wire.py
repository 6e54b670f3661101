"""The runner's side of its two sockets.

`Wire` owns the messages socket: it numbers transitions, remembers which are not acknowledged, and stops at
the first reply that is not `go`. `ValueReader` owns the values socket: blocking reads of larger values,
verified by digest, and effects in mid-step. Only the main thread receives on the messages socket; any thread may send.

A run of quick pure steps would wake the daemon at each of them. So their transitions may be held back, and leave with
the next message, before anything is waited for, or at the next tick of whoever ticks: the hang-up watcher, within
moments also when the main thread is in a step that blocks. When it has ticked without need it stops, and from then
on nothing is held. What is held when the process dies was never said: pure steps, which run again.

Neither ever retries: a closed socket means that the daemon is gone (`DaemonGone`), and the runner ends.
"""

from __future__ import annotations

import socket
from _thread import allocate_lock  # not threading: it has work to do in each fork
from collections import deque

import msgspec

from pwf import values
from pwf.errors import NotFound, ProtocolError, Rejected, by_code
from pwf.protocol.frames import FrameSplitter
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    BeginPart,
    FromRunner,
    Launch,
    PartAnswer,
    PutChunk,
    ReadSecret,
    ReadValue,
    SecretAnswer,
    SettlePart,
    StepReply,
    Value,
    ValueChunk,
    encode_line,
    to_runner,
    value_answer,
)
from pwf.protocol.settings import SettingsCopy

UNACKNOWLEDGED_MAX = 64  # transitions that may be under way at once
IDLE_TICKS_MAX = 5
HELD_MAX = 16  # transitions held back, so that the daemon has something to do meanwhile
RECEIVE_BYTES = 64 * 1024  # below what the allocator maps and unmaps each time


class DaemonGone(BaseException):
    """The daemon closed its socket. Not an `Exception`, so that a step's own handlers let it pass."""


class Wire:
    """Transitions out, replies in, over one blocking stream socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        self._lines: deque[bytes] = deque()
        self._sending = allocate_lock()
        self._held: list[bytes] = []  # with what follows under the lock `_sending`
        self._ticks = 0  # as many more times somebody calls `tick` at least
        self._seq = 0
        self._uploads = 0
        self._waiting: deque[int] = deque()
        self._stored: set[str] = set()
        self.stop: StepReply | None = None  # the first reply that was not `go`
        self.settings: SettingsCopy | None = None  # the newest that a reply has brought

    def receive_launch(self) -> Launch:
        """Block for the first frame. Raises `DaemonGone` when it never comes."""
        message = self._receive(blocking=True)
        if not isinstance(message, Launch):
            raise ProtocolError(f"expected launch as the first frame, got {type(message).__name__}")
        return message

    def next_launch(self) -> Launch:
        """Block for the first frame of a further run. Answers that still come of the last one are skipped."""
        self._seq = self._uploads = 0
        self._waiting.clear()
        self._stored.clear()
        self.stop = self.settings = None
        while not isinstance(message := self._receive(blocking=True), Launch):
            pass
        return message

    def take_seq(self) -> int:
        """The number of the next transition."""
        self._seq += 1
        return self._seq

    def send(self, message: FromRunner) -> None:
        """Send a message that has no reply. Any thread may call this."""
        data = encode_line([message])
        with self._sending:
            self._held.append(data)
            self._flush()

    def send_sequenced(self, message: FromRunner, seq: int, *, hold: bool = False) -> None:
        """Send a message that is answered, first waiting for room among the unacknowledged.

        With `hold` it may leave a moment later, while somebody ticks.
        """
        while len(self._waiting) >= UNACKNOWLEDGED_MAX and self.stop is None:
            self._apply(self._receive(blocking=True))
        data = encode_line([message])
        self._waiting.append(seq)
        with self._sending:
            self._held.append(data)
            if not hold or not self._ticks or len(self._held) >= HELD_MAX:
                self._flush()
            else:
                self._ticks = IDLE_TICKS_MAX

    def will_tick(self) -> bool:
        """Somebody calls `tick` every few milliseconds from now on, until it says no. False: nobody has till now."""
        with self._sending:
            before, self._ticks = self._ticks, IDLE_TICKS_MAX
        return before > 0

    def hold_nothing(self) -> None:
        """Send each transition at once from now on, whoever ticks."""
        with self._sending:
            self._ticks = 0

    def tick(self) -> bool:
        """Send what is held. False when nothing was for some ticks: then nothing is held any more.

        Any thread may call this. It waits for nothing but the socket, whose hang-up ends that too.
        """
        if not self._sending.acquire(blocking=False):
            return True  # somebody sends, and what is held with it
        try:
            self._ticks = max(0, self._ticks - 1)
            self._flush()
            return self._ticks > 0
        except MemoryError:  # the step has taken all there is: what is held stays, and the watcher must go on
            return True
        except DaemonGone:
            return False
        finally:
            self._sending.release()

    def _flush(self) -> None:
        if not self._held:
            return
        data = b"".join(self._held)
        self._held.clear()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise DaemonGone from error

    def drain(self) -> bool:
        """Take the replies that have arrived, without blocking. False when the runner must stop."""
        while len(self._waiting) > len(self._held) and self.stop is None:
            message = self._receive(blocking=False)
            if message is None:
                break
            self._apply(message)
        return self.stop is None

    def settle(self) -> bool:
        """Wait for every reply. False when the runner must stop."""
        while self._waiting and self.stop is None:
            self._apply(self._receive(blocking=True))
        return self.stop is None

    def put(self, data: bytes) -> Value:
        """Make canonical JSON a `Value`: inline when small, else uploaded, in chunks, unless it already was.

        Returns once the daemon holds the value; check `stop` afterwards, for it may have refused it.
        """
        if len(data) <= values.INLINE_BYTES_MAX:
            return Value(json=msgspec.Raw(data), size=len(data))
        digest = values.digest(data)
        if digest not in self._stored:
            self._upload(data, digest)
        return Value(digest=digest, size=len(data))

    def _upload(self, data: bytes, digest: str) -> None:
        # Uploads have their own numbers: with every transition acknowledged, no reply can be taken for another.
        if not self.settle():
            return
        self._uploads += 1
        starts = range(0, len(data), values.CHUNK_BYTES)
        for index, start in enumerate(starts):
            last = index == len(starts) - 1
            seq = self._uploads if last else 0
            piece = data[start : start + values.CHUNK_BYTES]
            chunk = PutChunk(seq=seq, digest=digest, index=index, data=piece, last=last, size=len(data))
            if last:
                self.send_sequenced(chunk, seq)
            else:
                self.send(chunk)
        if self.settle():
            self._stored.add(digest)

    def _apply(self, message: Launch | StepReply | None) -> None:
        if not isinstance(message, StepReply):
            raise ProtocolError(f"expected a reply, got {type(message).__name__}")
        if not self._waiting or message.seq != self._waiting[0]:
            raise ProtocolError(f"reply to {message.seq}, which is not the next one due")
        self._waiting.popleft()
        if message.settings is not None:
            self.settings = message.settings
        if message.verdict != "go":
            self.stop = message
            with self._sending:
                self._held.clear()  # thrown away, as is what it would lead to

    def _receive(self, *, blocking: bool) -> Launch | StepReply | None:
        """The next frame; None when none has arrived whole and `blocking` is off."""
        if blocking and self._held:
            with self._sending:
                self._flush()
        while not self._lines:
            try:
                data = self._socket.recv(RECEIVE_BYTES, 0 if blocking else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except OSError as error:
                raise DaemonGone from error
            if not data:
                raise DaemonGone
            self._lines.extend(self._splitter.feed(data))
        line = self._lines.popleft()
        try:
            return to_runner.decode(line)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"not a frame for a runner: {error}") from error


class ValueReader:
    """The values socket: reads values of this run by digest, and says what becomes of effects in mid-step.

    Any thread may call; one call goes on at a time. `is_answered`: no answer is on its way, as it is when a call was
    broken off. Another run must not get that answer.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._splitter = FrameSplitter(RUNNER_FRAME_BYTES_MAX)
        self._lines: deque[bytes] = deque()
        self._lock = allocate_lock()
        self.is_answered = True

    def ask(self, message: BeginPart | SettlePart) -> PartAnswer:
        """What the daemon says to an effect in mid-step. It is committed by then."""
        with self._lock:
            return self._asked(message)

    def put(self, data: bytes) -> Value:
        """Make canonical JSON a `Value` that a part may name: inline when small, else uploaded. Raises `Rejected`."""
        if len(data) <= values.INLINE_BYTES_MAX:
            return Value(json=msgspec.Raw(data), size=len(data))
        digest = values.digest(data)
        starts = range(0, len(data), values.CHUNK_BYTES)
        with self._lock:
            self._refuse_out_of_step()
            for index, start in enumerate(starts):
                last = index == len(starts) - 1
                piece = data[start : start + values.CHUNK_BYTES]
                chunk = PutChunk(digest=digest, index=index, data=piece, last=last, size=len(data))
                if not last:
                    self._say(chunk)
            answer = self._asked(chunk)
        if answer.verdict != "settled":
            raise Rejected("a value was not taken" if answer.error is None else answer.error.message)
        return Value(digest=digest, size=len(data))

    def exchange(self, message: msgspec.Struct) -> bytes:
        """The one line that answers a message. Raises `Rejected` after a call that was broken off."""
        with self._lock:
            return self._exchanged(message)

    def _exchanged(self, message: msgspec.Struct) -> bytes:
        self._refuse_out_of_step()
        self.is_answered = False
        self._say(message)
        line = self._line()
        self.is_answered = True
        return line

    def _asked(self, message: BeginPart | SettlePart | PutChunk) -> PartAnswer:
        answer = value_answer.decode(self._exchanged(message))
        assert isinstance(answer, PartAnswer)
        return answer

    def _refuse_out_of_step(self) -> None:
        """The answer to a call that a signal broke off is still on its way: it must not be taken for another's."""
        if not self.is_answered:
            raise Rejected(
                "an earlier call to the daemon was broken off, so that none can follow in this attempt"
            )

    def _say(self, message: msgspec.Struct) -> None:
        try:
            self._socket.sendall(encode_line([message]))
        except OSError as error:
            raise DaemonGone from error

    def fetch(self, value: Value, what: str) -> bytes:
        """The bytes of a value, inline or not. `NotFound` when the daemon has not got it."""
        if value.json is not None:
            return bytes(value.json)
        if value.digest is None:
            return b"null"
        return self.read(value.digest, what)

    def read(self, digest: str, what: str) -> bytes:
        """The bytes with this digest, verified."""
        with self._lock:
            data = self._read(digest, what)
        if values.digest(data) != digest:
            raise NotFound(f"{what} was read with other content than its digest {digest} says")
        return data

    def secret(self, name: str) -> str:
        """A secret's value. Raises what the daemon says of one that can't be had."""
        with self._lock:
            was_answered, self.is_answered = self.is_answered, False
            self._say(ReadSecret(name=name))
            answer = value_answer.decode(self._line())
            self.is_answered = was_answered
        assert isinstance(answer, SecretAnswer)
        if answer.value is None:
            raise by_code(answer.code)(answer.message, hint=answer.hint)
        return answer.value

    def _read(self, digest: str, what: str) -> bytes:
        was_answered, self.is_answered = self.is_answered, False
        self._say(ReadValue(digest=digest))
        pieces: list[bytes] = []
        while True:
            chunk = value_answer.decode(self._line())
            assert isinstance(chunk, ValueChunk)
            self.is_answered = was_answered and (chunk.missing or chunk.last)
            if chunk.missing:
                raise NotFound(f"{what} (digest {digest}) is not in the store")
            pieces.append(chunk.data)
            if chunk.last:
                return b"".join(pieces)

    def _line(self) -> bytes:
        while not self._lines:
            try:
                data = self._socket.recv(RECEIVE_BYTES)
            except OSError as error:
                raise DaemonGone from error
            if not data:
                raise DaemonGone
            self._lines.extend(self._splitter.feed(data))
        return self._lines.popleft()
