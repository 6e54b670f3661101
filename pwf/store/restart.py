"""Restart: a look at the old run, by which the caller finds the present code, then one transaction.

Promises: a run is restarted at most once, at exactly the revision that the caller saw, after it has ended, and when all
its effects are settled. Asked twice, a restart is the same run while that one goes on; when it has ended, the refusal
says how, and what to type. Between the look and the transaction another client may have restarted the run, so the
transaction looks again. A refusal is kept where it is given, so that a repeat gets it again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pwf.errors import Conflict, NotFound, Rejected
from pwf.protocol.operations import RunStarted
from pwf.protocol.runner import effect_key
from pwf.protocol.views import ENDED
from pwf.store.once import REFUSALS, Done, known_answer, once, refused
from pwf.store.queries import load_queries
from pwf.store.receipts import ReceiptKey
from pwf.store.runs import RunEnvironment, StartRun, start_run
from pwf.store.state import shown_status
from pwf.store.tx import Tx
from pwf.store.values import load_value

Q = load_queries(__file__)

NAMED_MAX = 5  # effects in a warning


class RestartFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a restart takes from the old run. `existing`: it has been restarted already, and that run goes on."""

    workflow: str
    path: str
    root: str
    input: bytes
    environment: RunEnvironment
    restart_root: str
    restart_no: int
    priority: int
    max_steps: int | None
    existing: RunStarted | None = None


class LookRestart(msgspec.Struct, frozen=True, kw_only=True):
    """May this run be restarted? `expected_revision` is what the caller saw of it. `receipt` is the restart's."""

    run_id: str
    expected_revision: int | None = None
    says_who: bool = False  # it names an agent or a session: one that goes on already is another
    receipt: ReceiptKey | None = None


@dataclass(frozen=True)
class Looked:
    """`done`: the restart has its answer already. Otherwise `facts` is what the new run takes."""

    run_id: str
    facts: RestartFacts | None = None
    done: Done[RunStarted] | None = None


def look_restart(tx: Tx, command: LookRestart) -> Looked:
    """Look, and keep the answer if there is one already: a refusal, or the run that a restart made before."""
    done = known_answer(tx, command.receipt, RunStarted)
    if done is not None:
        return Looked(command.run_id, done=done)
    try:
        facts = _facts(tx, command.run_id, command.expected_revision)
        _refuse_another(facts, command.run_id, says_who=command.says_who)
    except REFUSALS as refusal:
        return Looked(command.run_id, done=refused(tx, command.receipt, refusal))
    existing = facts.existing
    if existing is None:
        return Looked(command.run_id, facts=facts)
    return Looked(command.run_id, done=once(tx, command.receipt, RunStarted, lambda: (existing, True)))


class RestartRun(msgspec.Struct, frozen=True, kw_only=True):
    """`start` is the new run, with `restarted_from` set; its receipt is the restart's."""

    start: StartRun
    expected_revision: int | None = None


def restart_run(tx: Tx, command: RestartRun) -> Done[RunStarted]:
    """Start the new run, or give back the one that a restart made before. A refusal when it may not be."""
    old = command.start.restarted_from
    assert old is not None

    def act() -> tuple[RunStarted, bool]:
        facts = _facts(tx, old, command.expected_revision)
        _refuse_another(facts, old, says_who=command.start.says_who)
        if facts.existing is not None:
            return facts.existing, True
        done = start_run(tx, msgspec.structs.replace(command.start, receipt=None))
        started = done.unwrap()
        return msgspec.structs.replace(
            started, warnings=(*started.warnings, *_made_again(tx, old))
        ), done.adopted

    return once(tx, command.start.receipt, RunStarted, act)


def _made_again(tx: Tx, run_id: str) -> tuple[str, ...]:
    """A restart begins anew, as it is told to: what that makes a second time is said, and not refused."""
    rows = tx.all(Q.happened, {"run_id": run_id, "limit": NAMED_MAX + 1})
    if not rows:
        return ()
    keys = [effect_key(run_id, *row) for row in rows[:NAMED_MAX]] + ["…"] * (len(rows) > NAMED_MAX)
    return (
        f"these effects of run {run_id} happened or were given up, and the restart makes them again if it comes to "
        f"them: {', '.join(keys)}",
    )


def _refuse_another(facts: RestartFacts, run_id: str, *, says_who: bool) -> None:
    """A restart that goes on has who it has."""
    if facts.existing is not None and says_who:
        raise Conflict(
            f"run {run_id} was restarted as {facts.existing.run_id}, which goes on",
            hint=f"pwf watch {facts.existing.run_id}; or end it first: pwf cancel {facts.existing.run_id}",
        )


def _facts(tx: Tx, run_id: str, expected_revision: int | None) -> RestartFacts:
    """The facts, or why the run is not restarted."""
    row = tx.one(Q.facts, {"run_id": run_id})
    if row is None:
        raise NotFound(f"there is no run {run_id!r}")
    (workflow, inline, input_digest, status, restart_root, restart_no, priority, path, root, revision,
     body, max_steps) = row  # fmt: skip
    if status not in ENDED:
        raise Rejected(f"run {run_id} has not ended", hint=f"pwf cancel {run_id}, then restart it")
    _check_revision(run_id, revision, expected_revision)
    _check_effects(tx, run_id)
    return RestartFacts(
        workflow=workflow,
        path=path,
        root=root,
        input=load_value(tx, inline, input_digest),
        environment=msgspec.json.decode(body, type=RunEnvironment),
        restart_root=restart_root or run_id,
        restart_no=restart_no + 1,
        priority=priority,
        max_steps=max_steps,
        existing=_existing(tx, run_id),
    )


def _check_revision(run_id: str, revision: int, expected: int | None) -> None:
    if expected is None:
        raise Rejected(
            f"run {run_id} has ended: say which revision of it is to be restarted; now it has revision {revision}",
            hint=f"pwf restart {run_id} --revision {revision}",
        )
    if expected != revision:
        raise Conflict(
            f"run {run_id} has revision {revision} by now; you expected {expected}",
            hint=f"pwf show {run_id}, then pwf restart {run_id}",
        )


def _check_effects(tx: Tx, run_id: str) -> None:
    keys = [effect_key(run_id, *row) for row in tx.all(Q.unsettled, {"run_id": run_id})]
    if keys:
        raise Rejected(
            f"nobody knows whether these effects of run {run_id} happened: {', '.join(keys)}",
            hint=f"find out, then: pwf effects resolve {keys[0]} happened|not-happened|give-up",
        )


def _existing(tx: Tx, run_id: str) -> RunStarted | None:
    """The restart that goes on; `Rejected` when it has ended, since then it is the one to restart."""
    row = tx.one(Q.made, {"run_id": run_id})
    if row is None:
        return None
    made, status, hold, reason, restart_root, restart_no, revision = row
    if status in ENDED:
        how = f": {reason}" if reason else ""
        newest, its_status = tx.all(Q.newest, {"restart_root": restart_root})[0]
        since = "" if newest == made else f"; the newest restart since is {newest} ({its_status})"
        raise Rejected(
            f"run {run_id} was restarted as {made}, which has ended ({status}{how}){since}",
            hint=f"pwf restart {newest}" if its_status in ENDED else f"pwf watch {newest}",
        )
    return RunStarted(
        run_id=made,
        status=shown_status(status, hold),  # type: ignore[arg-type]
        revision=revision,
        restarted_from=run_id,
        restart_root=restart_root,
        restart_no=restart_no,
    )
