"""Messages of channels: made of what happened, sent one at a time as effects of the ledger, and closed when settled.

Promises: what is to be sent is a row; its effect is `applying` on disk before an adapter hears of it, and settled
after; where nobody knows, it is ambiguous, and only a person's word moves it (`channel_words`). A known refusal is
tried again within a bound, and without one where nobody was reached. Closing is safe to repeat, and is repeated.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import msgspec

from pwf.errors import NotFound
from pwf.protocol.channel_port import ChannelMessage, Close, Sent, Show
from pwf.protocol.kinds import DECIDED, PLAIN
from pwf.protocol.runner import StepError
from pwf.protocol.web import hash_of
from pwf.store.channel_content import ASKING, closing_words, content_of, notice_of, title_of
from pwf.store.channel_rows import BY_NAME, GONE, MESSAGES_KEY, StoredChannel, owned, stored_channels
from pwf.store.channel_times import Showing, after_quiet
from pwf.store.queries import load_queries
from pwf.store.state import encode
from pwf.store.tx import Tx
from pwf.store.values import UNREADABLE
from pwf.store.web_tokens import MakeLink, make_link
from pwf.values import canonical, digest, shortened

Q = load_queries(__file__)

PAGE = 100
TRIES_MAX = 6  # sends of one message that were refused
CLOSE_TRIES_MAX = 12
REMINDERS_MAX = 10  # of one decision in one channel
BACKOFF_MS = 2_000
BACKOFF_MS_MAX = 300_000
WHY_CHARS = 500

Audiences = Mapping[str, Showing]  # those that the configuration names


# --- making messages ------------------------------------------------------------------------------------------


def make_messages(tx: Tx, audiences: Audiences) -> bool:
    """Make messages of what has happened; whether there is more."""
    found = tx.all(Q.happened, {"limit": PAGE})
    if not found:
        return False
    channels = [one for one in stored_channels(tx) if one.state != "off"]
    for number, event, run_id, request_id, attempt in found:
        tx.run(Q.told, {"happening_no": number})
        meant = None
        if request_id is not None:
            event, meant = _asked(tx, request_id, audiences)
        for channel in channels:
            due = _first_ms(channel, meant, tx.now.wall_ms, tx.now.wall_ms)
            if event in channel.tells and due is not None:
                _add(tx, channel.channel_no, event, run_id, request_id, due, attempt)
    return len(found) == PAGE


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """Make messages of open decisions that the channel has not shown, from a place on."""

    channel_no: int
    audiences: dict[str, Showing]
    after_ms: int = -1
    after_id: str = ""


def make_missing(tx: Tx, command: Missing) -> Missing | None:
    """The next page; where to go on. For a channel that starts, is reloaded or added; what was refused is due anew."""
    channel = next(one for one in stored_channels(tx) if one.channel_no == command.channel_no)
    if command.after_ms < 0:
        tx.run(Q.take_up, {"channel_no": channel.channel_no, "now": tx.now.wall_ms})
        if channel.kind in BY_NAME:
            tx.run(Q.gone_effects, {"channel_no": channel.channel_no, "now": tx.now.wall_ms})
            tx.run(Q.show_anew, {"channel_no": channel.channel_no, "now": tx.now.wall_ms, "why": GONE})
        for (request_id,) in tx.all(Q.open_here, {"channel_no": channel.channel_no}):
            remind(tx, channel.channel_no, command.audiences, request_id)
        tx.changed(MESSAGES_KEY)
    place = {"channel_no": channel.channel_no, "after_ms": command.after_ms, "after_id": command.after_id}
    found = tx.all(Q.not_shown, {**place, "limit": PAGE}) if "decide" in channel.tells else []
    for request_id, run_id, audience, asked_ms in found:
        due = _first_ms(channel, command.audiences.get(audience), asked_ms, tx.now.wall_ms)
        if due is not None:
            _add(tx, channel.channel_no, "decide", run_id, request_id, due)
    if len(found) < PAGE:
        return None
    return msgspec.structs.replace(command, after_ms=found[-1][3], after_id=found[-1][0])


def _asked(tx: Tx, request_id: str, audiences: Audiences) -> tuple[str, Showing | None]:
    """What a question is for people, "" where it is not for them; how its audience is shown it, None: everywhere."""
    row = tx.one(Q.asked, {"request_id": request_id})
    kind, audience = row or ("", None)
    if kind in DECIDED:
        return "decide", audiences.get(audience)
    return "waiting" if kind in PLAIN else "", None


def _first_ms(channel: StoredChannel, meant: Showing | None, asked_ms: int, now_ms: int) -> int | None:
    """When the channel shows what was asked then; None: it does not."""
    if meant is None:
        return None if channel.kind in BY_NAME else now_ms
    return meant.first_ms(channel.name, asked_ms, now_ms) if channel.name in meant.channels else None


def _add(
    tx: Tx,
    channel_no: int,
    event: str,
    run_id: str | None,
    request_id: str | None,
    due: int,
    attempt: int | None = None,
) -> str:
    message_id = tx.ids.new()
    facts = {"channel_no": channel_no, "event": event, "run_id": run_id, "request_id": request_id}
    tx.run(Q.add, {"message_id": message_id, "attempt": attempt, "due": due, "now": tx.now.wall_ms, **facts})
    tx.changed(MESSAGES_KEY)
    return message_id


def add_test(tx: Tx, channel_no: int) -> str:
    """A message that only says that the channel works."""
    return _add(tx, channel_no, "test", None, None, tx.now.wall_ms)


# --- sending --------------------------------------------------------------------------------------------------


class NextWork(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter is to do: `say` it, or wait; `in_ms`: until something is due, None where nothing is."""

    say: Show | Close | None = None
    in_ms: int | None = None


class BeginWork(msgspec.Struct, frozen=True, kw_only=True):
    """The adapter of this epoch is free."""

    channel_no: int
    epoch: int
    audiences: dict[str, Showing] = {}
    pages: str | None = None  # where the answer pages are, if people outside reach them


class DueMessage(msgspec.Struct, frozen=True):
    """The row of what is due."""

    message_id: str
    event: str
    run_id: str | None
    request_id: str | None
    attempt: int | None
    state: str
    tries: int
    early: int
    due_wall_ms: int
    ref: str | None


def look_for_work(tx: Tx, channel_no: int) -> NextWork:
    """Whether something is due, and when. Writes nothing."""
    row = tx.one(Q.next_due, {"channel_no": channel_no})
    return (
        NextWork() if row is None else NextWork(in_ms=max(0, DueMessage(*row).due_wall_ms - tx.now.wall_ms))
    )


def anything_happened(tx: Tx, _: None = None) -> bool:
    """Whether `make_messages` finds something to do."""
    return bool(tx.all(Q.happened, {"limit": 1}))


def begin_work(tx: Tx, command: BeginWork) -> NextWork:
    """Take what is due: the intent is stored with this."""
    channel = owned(tx, command.channel_no, command.epoch)
    row = tx.one(Q.next_due, {"channel_no": channel.channel_no})
    if row is None:
        return NextWork()
    due = DueMessage(*row)
    if due.due_wall_ms > tx.now.wall_ms:
        return NextWork(in_ms=due.due_wall_ms - tx.now.wall_ms)
    if due.state == "closing":
        return _close(tx, due)
    if due.event in ASKING and _not_now(tx, command.audiences, due, channel):
        return NextWork(in_ms=0)
    return NextWork(say=_send(tx, command, due, channel.name), in_ms=0)


def _not_now(tx: Tx, audiences: Audiences, due: DueMessage, channel: StoredChannel) -> bool:
    """Its audience is looked at anew: it was late, or the configuration has changed since it became due."""
    meant = _asked(tx, due.request_id or "", audiences)[1]
    if _first_ms(channel, meant, tx.now.wall_ms, tx.now.wall_ms) is None:
        move(tx, due.message_id, "void", why="its audience is not shown it in this channel any more")
        return True
    then = tx.now.wall_ms if meant is None else after_quiet(tx.now.wall_ms, meant.quiet)
    if then > tx.now.wall_ms:
        move(tx, due.message_id, "due", due=then)
        return True
    return False


def _send(tx: Tx, command: BeginWork, due: DueMessage, name: str) -> Show | None:
    """What is sent now; None where it can't be read: that is kept as the reason, and the next one is sent."""
    token = tx.ids.token() if due.event in ASKING else ""
    facts = {"message": due.message_id, "event": due.event, "run": due.run_id, "request": due.request_id}
    request = canonical(facts if due.attempt is None else {**facts, "attempt": due.attempt}, what="a message")
    tx.run(
        Q.reserve,
        {
            "channel_no": command.channel_no,
            "message_id": due.message_id,
            "type": f"channel.{due.event}",
            "epoch": command.epoch,
            "request": request,
            "request_crc32": zlib.crc32(request),
            "fingerprint": digest(request),
            "now": tx.now.wall_ms,
        },
    )
    tx.run(Q.sending, {"message_id": due.message_id, "token_digest": token_digest(token) if token else None})
    try:
        content = _content(tx, due, token)
    except (NotFound, *UNREADABLE) as error:
        why = f"what it says can not be read: {type(error).__name__}"
        settle_effect(tx, command.channel_no, due.message_id, "rejected", why=why)
        move(tx, due.message_id, "refused", why=why)
        return None
    if token and command.pages is not None:
        content = msgspec.structs.replace(content, link=_link(tx, command.pages, due, name))
    return Show(attempt=due.tries + 1, message=content)


def _content(tx: Tx, due: DueMessage, token: str) -> ChannelMessage:
    if due.run_id is not None and due.attempt is not None:
        return notice_of(tx, due.message_id, due.run_id, due.attempt)
    return content_of(tx, due.message_id, due.event, due.run_id, due.request_id, token)


def _link(tx: Tx, pages: str, due: DueMessage, name: str) -> str | None:
    """A link that decides it, once; None where there are too many."""
    token = tx.ids.token()
    made = MakeLink(decision=due.request_id or "", token_hash=hash_of(token), actor=name)
    return None if make_link(tx, made).refusal is not None else f"{pages}/answer/{token}"


def _close(tx: Tx, due: DueMessage) -> NextWork:
    """What can be edited is; the rest is closed as it is."""
    if due.ref is None or due.tries - due.early >= CLOSE_TRIES_MAX or due.request_id is None:
        why = None if due.ref is None else "its end could not be shown"
        move(tx, due.message_id, "closed", why=why)
        return NextWork(in_ms=0)
    tx.run(Q.closing, {"message_id": due.message_id, "due": tx.now.wall_ms + _backoff_ms(due.tries + 1)})
    try:
        title, said = title_of(tx, due.request_id), closing_words(tx, due.request_id)
    except (NotFound, *UNREADABLE):
        title, said = "pwf", f"settled: pwf decisions {due.request_id}"
    return NextWork(
        say=Close(attempt=due.tries + 1, ref=due.ref, message_id=due.message_id, title=title, said=said)
    )


class SettleWork(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter says of its work. `audiences`: who is reminded of what was shown."""

    channel_no: int
    said: Sent
    audiences: dict[str, Showing] = {}


def settle_work(tx: Tx, command: SettleWork) -> bool:
    """Store what became of it; False where that is not what the message waits for."""
    said = command.said
    owned(tx, command.channel_no, said.epoch)
    row = tx.one(Q.message, {"message_id": said.message_id})
    if row is None or row[0] != command.channel_no or row[3] != said.attempt:
        return False
    _channel_no, request_id, state, tries, early = row
    if said.early:
        tx.run(Q.came_early, {"message_id": said.message_id})
    if state == "closing":
        if said.early:
            move(tx, said.message_id, "closing", due=tx.now.wall_ms + _again_ms(said), why=_why(said))
        elif said.outcome == "done" or said.final:
            why = None if said.outcome == "done" else _why(said)
            move(tx, said.message_id, "closed", why=why)
        return True
    if state != "sending":
        return False
    status = {"done": "applied", "refused": "rejected", "unknown": "ambiguous"}[said.outcome]
    settle_effect(tx, command.channel_no, said.message_id, status, ref=said.ref, why=said.why)
    if said.outcome == "done":
        shown(tx, said.message_id, request_id)
    elif said.outcome == "unknown":
        move(tx, said.message_id, "ambiguous", why=_why(said))
    else:
        _refused(tx, said, request_id, counted=tries - early)
    remind(tx, command.channel_no, command.audiences, request_id)
    tx.changed(MESSAGES_KEY)
    return True


def shown(tx: Tx, message_id: str, request_id: str | None) -> None:
    """It was sent. What was settled meanwhile is closed."""
    if is_open(tx, request_id):
        move(tx, message_id, "shown")
    else:
        move(tx, message_id, "closing", due=tx.now.wall_ms, anew=True)


def remind(tx: Tx, channel_no: int, audiences: Audiences, request_id: str | None) -> None:
    """It is shown again later, if nobody has decided by then; whatever became of the message before."""
    if request_id is None or not is_open(tx, request_id):
        return
    event, meant = _asked(tx, request_id, audiences)
    row = tx.one(Q.reminders, {"request_id": request_id, "channel_no": channel_no})
    assert row is not None, "it is a count"
    run_id, reminders, on_the_way = row
    if event != "decide" or run_id is None or on_the_way or reminders >= REMINDERS_MAX:
        return
    if meant is not None and meant.remind_ms is not None:
        due = after_quiet(tx.now.wall_ms + meant.remind_ms, meant.quiet)
        _add(tx, channel_no, "remind", run_id, request_id, due)


def _refused(tx: Tx, said: Sent, request_id: str | None, *, counted: int) -> None:
    """It was not sent: once more, within the bound; without one where nobody was reached."""
    if not is_open(tx, request_id):
        move(tx, said.message_id, "void", why="it was settled before it was shown")
    elif not said.early and (said.final or counted >= TRIES_MAX):
        move(tx, said.message_id, "refused", why=_why(said))
    else:
        move(tx, said.message_id, "due", due=tx.now.wall_ms + _again_ms(said), why=_why(said))


def settle_effect(
    tx: Tx,
    channel_no: int,
    message_id: str,
    status: str,
    *,
    ref: str | None = None,
    why: str | None = None,
    by: str | None = None,
) -> None:
    """Write what became of a send into the ledger."""
    error = None if why is None else StepError(code="channel", message=shortened(why, WHY_CHARS))
    facts = {
        "status": status,
        "ref": ref,
        "error": None if error is None else encode(error),
        "settled": None if status == "ambiguous" else tx.now.wall_ms,
        "by": by,
    }
    tx.run(Q.settle, {"channel_no": channel_no, "message_id": message_id, **facts})


def move(
    tx: Tx,
    message_id: str,
    state: str,
    *,
    due: int | None = None,
    why: str | None = None,
    anew: bool = False,
) -> None:
    """Where a message stands from now on."""
    tx.run(Q.move, {"message_id": message_id, "state": state, "due": due, "why": why, "anew": anew})
    tx.changed(MESSAGES_KEY)


def is_open(tx: Tx, request_id: str | None) -> bool:
    """Whether what the message asks is still asked; one that asks nothing counts so."""
    if request_id is None:
        return True
    row = tx.one(Q.is_open, {"request_id": request_id})
    return row is not None and bool(row[0])


def token_digest(token: str) -> str:
    """What is stored of a token."""
    return digest(token.encode())


def _why(said: Sent) -> str:
    return shortened(said.why or said.outcome, WHY_CHARS)


def _again_ms(said: Sent) -> int:
    """How long the next try waits."""
    return max(_backoff_ms(said.attempt), round((said.retry_after_s or 0) * 1_000))


def _backoff_ms(tries: int) -> int:
    doubled = BACKOFF_MS << min(max(tries - 1, 0), 10)
    return min(BACKOFF_MS_MAX, doubled)
