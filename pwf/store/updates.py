"""The updates that a run's steps publish: the current item of each kind and key, and samples of its progress.

Owns the table `updates`. Promises: a run has at most `UPDATES_MAX` of them, of at most `UPDATE_BYTES_MAX` each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import msgspec

from pwf.errors import ClaimLost
from pwf.protocol.agents import AgentCommand
from pwf.protocol.progress import AMOUNT_MAX, PROGRESS, Estimate, Moment
from pwf.protocol.runner import UPDATE_BYTES_MAX, UPDATES_MAX, AgentReport, Publish, Titled, Told
from pwf.protocol.views import UpdateView
from pwf.store.agent_work import agent_of, put_work
from pwf.store.budgets import why_spent
from pwf.store.custody_rows import holds_lease
from pwf.store.estimate import Sample, estimate, with_sample
from pwf.store.queries import load_queries
from pwf.store.runners import Fence
from pwf.store.state import graph_of, load_run
from pwf.store.tx import Row, Tx
from pwf.values import CHUNK_BYTES, shortened

Q = load_queries(__file__)

TITLE_MAX = 200  # characters
UPDATES_BYTES = 200 * 1024  # of all in one view


class _Counted(msgspec.Struct, frozen=True):
    """What is counted of progress, whoever wrote it."""

    completed: Annotated[float, msgspec.Meta(ge=0, le=AMOUNT_MAX)] | None = None
    total: Annotated[float, msgspec.Meta(le=AMOUNT_MAX)] | None = None
    at_ms: Moment | None = None


_counted = msgspec.json.Decoder(_Counted)
_samples = msgspec.json.Decoder(tuple[Sample, ...])


class PublishUpdates(msgspec.Struct, frozen=True, kw_only=True):
    """`title`: of the run, where its runner has made one. `reports`: of its agents, in order."""

    fence: Fence
    updates: tuple[Publish, ...]
    title: str | None = None
    reports: tuple[AgentReport, ...] = ()
    agents: dict[str, AgentCommand] = {}

    @classmethod
    def told(
        cls, fence: Fence, words: Sequence[Told], agents: dict[str, AgentCommand] | None = None
    ) -> PublishUpdates:
        """What a runner has said besides its steps, in order."""
        titles = [word.title for word in words if isinstance(word, Titled)]
        return cls(
            fence=fence,
            updates=tuple(word for word in words if isinstance(word, Publish)),
            title=titles[-1] if titles else None,
            reports=tuple(word for word in words if isinstance(word, AgentReport)),
            agents=agents or {},
        )


class Published(msgspec.Struct, frozen=True):
    """How many updates were dropped; whether the run's agents have gone beyond a budget, so that the step is ended."""

    dropped: int
    is_over: bool = False


def publish_updates(tx: Tx, command: PublishUpdates) -> Published:
    """Keep the newest record per kind and key, at most `UPDATES_MAX` a run, each of at most `UPDATE_BYTES_MAX`;
    says how many were dropped. The runner has refused them to its author with a clear error.

    Updates count no revision: they are no step of the run, and views read them from their rows.
    """
    fence = command.fence
    if not holds_lease(tx, fence.entity_no, fence.generation, fence.token):
        raise ClaimLost(f"run {fence.run_id} has another owner by now")
    if sum(len(bytes(update.data)) for update in command.updates) > CHUNK_BYTES:
        tx.lengthy()
    if command.title is not None:
        tx.run(Q.put_title, {"run_no": fence.entity_no, "title": shortened(command.title, TITLE_MAX)})
    for report in command.reports:
        put_work(tx, fence.entity_no, report)
    dropped = 0
    for update in command.updates:
        which = Which(fence.run_id, update.kind, update.key)
        known, has_room = look_up(tx, which)
        if not has_room or len(bytes(update.data)) > UPDATE_BYTES_MAX:
            dropped += 1
            continue
        samples = _sampled(update, known, tx.now.wall_ms)
        put_update(tx, which, bytes(update.data), update.attempt, samples)
    tx.changed("run:" + fence.run_id)
    return Published(dropped, bool(command.reports) and _is_over(tx, command))


class Which(NamedTuple):
    """An item of a run."""

    run_id: str
    kind: str
    key: str


def look_up(tx: Tx, which: Which) -> tuple[Row | None, bool]:
    """The current item's attempt and samples, if there is one; and whether there is room for it."""
    count = tx.one(Q.count_updates, {"run_id": which.run_id})
    known = tx.one(Q.update_known, which._asdict())
    return known, known is not None or count is None or count[0] < UPDATES_MAX


def put_update(tx: Tx, which: Which, data: bytes, attempt: int, samples: bytes | None = None) -> None:
    """It is the current item from now on."""
    written = {"data": data, "now": tx.now.wall_ms, "attempt": attempt, "samples": samples}
    tx.run(Q.put_update, {**which._asdict(), **written})


def _is_over(tx: Tx, command: PublishUpdates) -> bool:
    run = load_run(tx, command.fence.run_id)
    agent = agent_of(run, command.agents)
    if agent is None:
        return False
    return why_spent(tx, run, graph_of(tx, run.definition_id), agent, within=True) is not None


def _sampled(update: Publish, known: Row | None, now_ms: int) -> bytes | None:
    """The samples of this progress, with what it tells now; None where it tells no number."""
    if update.kind != PROGRESS:
        return None
    try:
        counted = _counted.decode(bytes(update.data))
    except msgspec.MsgspecError:
        return None
    before = None if known is None or known[0] != update.attempt else known[1]
    if counted.completed is None:
        return before
    at_ms = now_ms if counted.at_ms is None else counted.at_ms
    return msgspec.json.encode(with_sample(_samples_of(before), (at_ms, counted.completed)))


def _samples_of(kept: bytes | None) -> tuple[Sample, ...]:
    """Samples that a damaged file has made unreadable are as good as none."""
    try:
        return () if kept is None else _samples.decode(kept)
    except msgspec.MsgspecError:
        return ()


def current_updates(tx: Tx, run_id: str, attempt: int) -> tuple[UpdateView, ...]:
    """The current items by kind and key. The oldest say only their size when all would not fit into a frame.

    Of the progress that `attempt` makes, which is under way, rate and time left are estimated.
    """
    left = UPDATES_BYTES
    found = []
    for kind, key, data, at, made_by, samples in tx.all(Q.updates, {"run_id": run_id}):
        left -= len(data)
        shown = data if left >= 0 else msgspec.json.encode({"omitted_bytes": len(data)})
        guess = _estimate(data, samples) if samples is not None and made_by == attempt else None
        found.append(UpdateView(kind=kind, key=key, data=msgspec.Raw(shown), updated_ms=at, estimate=guess))
    return tuple(sorted(found, key=lambda update: (update.kind, update.key)))


def _estimate(data: bytes, samples: bytes) -> Estimate | None:
    try:
        total = _counted.decode(data).total
    except msgspec.MsgspecError:  # not by `ctx.progress`
        total = None
    return estimate(_samples_of(samples), total)
