"""Rare branches of the product that campaigns must reach, marked from outside: no line of the product knows of it.

A mark names a function and the first words of a statement in it, and perhaps a condition. `install` compiles the
function anew with a counter before that statement. A campaign prints how often each was reached; a test says which
mark no longer has its place.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

COUNTER = "_branch_was_reached"

reached: Counter[str] = Counter()  # in this process, since somebody cleared it


class Branch(NamedTuple):
    """`place`: module and function. `before`: how the statement begins, the `nth` of its like. `when`: a condition."""

    name: str
    place: str
    before: str
    when: str | None = None
    nth: int = 1


BATCH = "pwf.store.batch:Writer."
SHARE = "pwf.store.loop_share:"
END = "pwf.store.runner_end:"
SUPERVISOR = "pwf.actors.runs.run_supervisor:RunSupervisor."
SCHEDULER = "pwf.actors.runs.scheduler:Scheduler."
BRANCHES = (
    # --- a batch ---
    Branch("a batch is undone and run again", BATCH + "_run_together", 'self._statement("ROLLBACK")'),
    Branch("a batch was lost, its commands run one by one", BATCH + "_run_one_by_one", "self._answers = []"),
    Branch(
        "one by one, and fenced meanwhile",
        BATCH + "_run_alone",
        "answer = self._run_part(",
        "self.claim is not None and not self._holds_claim()",
    ),
    Branch(
        "a command alone finds the disk full or broken",
        BATCH + "_run_alone",
        "failure = self._translate(_cause",
    ),
    Branch(
        "the commit of a command alone fails",
        BATCH + "_run_alone",
        "failure = self._translate(error) if full",
    ),
    Branch(
        "a batch can not begin", BATCH + "execute", "self._answers = [JobResult(error=self._translate(error))"
    ),
    Branch("a commit finds the disk full", BATCH + "commit", "self._note_disk_full("),
    Branch("the outcome of a commit is unknown", BATCH + "commit", "unknown = self._commit_failed("),
    Branch("a command of a daemon that was taken over from", BATCH + "_without_claim", "return ClaimLost("),
    Branch("the ballast is released", BATCH + "_note_disk_full", 'self._warn("store.disk_full"', "released"),
    Branch("the disk has space again", BATCH + "rebuild_ballast", "self.tx.disk_full = False"),
    Branch("a checkpoint is held up by a reader", BATCH + "checkpoint", "self._is_pinned = True"),
    Branch("a checkpoint fails", BATCH + "checkpoint", 'self._warn("store.checkpoint_failed"', nth=2),
    Branch("the WAL is cut off", BATCH + "checkpoint", "self._tried_pages = ", "cut and not self._wal_pages"),
    # --- the loop's share of a batch ---
    Branch("a batch is committed in the loop's thread", SHARE + "LoopShare.run", "return writer.batch()"),
    Branch(
        "a batch begins in the loop's thread and goes on in the writer's",
        BATCH + "execute",
        "self._run_together()",
        "bool(self._answers)",
    ),
    Branch("a command turns out to take long", "pwf.store.tx:Tx.lengthy", "self.needs_undo = True"),
    Branch(
        "the loop finds the database locked",
        BATCH + "execute_at_once",
        "self._end()",
        "not self.is_open and not self._answers",
    ),
    Branch(
        "a COMMIT fails in the loop's thread", BATCH + "execute", "return", "self._uncommitted is not None"
    ),
    Branch("a slow disk has its COMMITs in the writer's thread", SHARE + "Pace.note", "self.in_loop, self"),
    Branch("COMMITs are the loop's again", SHARE + "Pace.note", "self.in_loop = True"),
    # --- what a runner says ---
    Branch("two steps end in one command", "pwf.store.change:Change.__exit__", "tx.count_writes("),
    Branch("a message is a repeat", "pwf.store.transitions:_replay", "row = tx.one("),
    Branch(
        "a message of a runner whose run was taken from it",
        "pwf.store.transitions:apply_messages",
        "if run.lease_token != fence.token",
        "run.lease_token != fence.token or run.status != 'running'",
    ),
    Branch(
        "an effect of unknown outcome is observed",
        "pwf.store.runners:leave_unknown",
        'moves.settle_effect(tx, run, "applying")',
    ),
    Branch(
        "an effect is ambiguous",
        "pwf.store.runners:leave_unknown",
        'moves.settle_effect(tx, run, "ambiguous")',
    ),
    Branch(
        "a step took too long, and its runner was ended", END + "_end_try", "outcome, error", "death is None"
    ),
    Branch("a step took its process with it", END + "_end_try", "outcome, error", "death is not None"),
    Branch(
        "a manual effect was never begun",
        END + "_settle_interrupted",
        'moves.settle_effect(tx, run, "cancelled")',
    ),
    Branch("a run has no progress", END + "_go_on", "detail = f"),
    # --- what people say ---
    Branch("a repeat gets its refusal again", "pwf.store.once:_again", "body = msgspec.json.decode("),
    Branch("a retry is asked for while it goes on", "pwf.store.fork:_going_on", "return RunStarted("),
    Branch("a fork would repeat an effect", "pwf.store.fork:_repeated", "raise Rejected("),
    Branch("a fork would take over a person's answer", "pwf.store.fork:_refuse_answers", "raise Rejected("),
    Branch("a fork is asked for a visit that was taken over", "pwf.store.fork:_at_visit", "raise Rejected("),
    Branch("a run goes on after its last step", "pwf.store.fork:_where_it_failed", "fork = Fork("),
    Branch(
        "a value was sent to an earlier daemon", "pwf.store.uploads:uploaded_size", "raise ContentWanted("
    ),
    Branch(
        "an edited file is resolved anew",
        "pwf.actors.code.definitions:Definitions._handle_resolve",
        "self._entries.pop(key",
        "key in self._entries",
    ),
    Branch(
        "who joined a question about a file looks again",
        "pwf.actors.code.definitions:Definitions._resolve_for_all",
        "joined.reply.give(None)",
    ),
    Branch(
        "a fork takes results over into other code",
        "pwf.actors.operations.fork:_check_results",
        "for result in facts.results",
        "bool(facts.results)",
    ),
    Branch("a restart is asked twice", "pwf.store.restart:_existing", "return RunStarted("),
    Branch("a restart of what was restarted, and has ended", "pwf.store.restart:_existing", "how = f"),
    Branch(
        "a question is answered a second time",
        "pwf.store.requests:is_repeat",
        'raise Conflict(f"request {asked.request_id} was',
    ),
    Branch(
        "an answer comes when its time is over",
        "pwf.store.requests:_refuse_late",
        'raise Conflict(f"the time to answer',
    ),
    Branch("a decision is made a second time", "pwf.store.decisions:_decide", "raise _too_late("),
    Branch("an answer is to another proposal", "pwf.store.decisions:_decide", "raise Conflict("),
    Branch("a link decides", "pwf.store.web_tokens:spend", "tx.run("),
    Branch("a link is to another decision", "pwf.store.web_tokens:deciding_token", "raise TokenRefused("),
    Branch("a decision is closed with its run", "pwf.store.decision_rows:closed_with_run", "keep_answer("),
    Branch("nobody decides in time", "pwf.store.deadlines:_keep_winner", "keep_answer(", nth=1),
    Branch("a default is the answer", "pwf.store.deadlines:_time_out", "complete_parked("),
    Branch("a question has timed out", "pwf.store.deadlines:_time_out", "end_parked("),
    Branch("a model has worked for as long as it may", "pwf.store.deadlines:_pass_limit", "end_parked("),
    Branch("a session is reminded", "pwf.store.session_turns:_remind", "tx.run(Q.reminded"),
    Branch("a session has submitted nothing", "pwf.store.session_turns:_remind", "end_parked("),
    Branch("an aborted turn pauses its run", "pwf.store.session_turns:_pause", "place.hold("),
    Branch("a turn is lost, and its step told anew", "pwf.store.session_turns:_lose", "_fresh("),
    Branch("a session is told of a rejection", "pwf.store.session_messages:rejected", "fresh_step("),
    Branch("the time of a question stands still", "pwf.store.request_clock:stop", "tx.run("),
    Branch("one of several effects is to be observed", "pwf.store.step_parts:leave_parts", "return True"),
    Branch("one of several effects is ambiguous", "pwf.store.step_parts:leave_parts", "leave_ambiguous("),
    Branch(
        "an effect is not reached any more",
        "pwf.store.step_parts:what_is_left",
        "return Left.ASK if is_over",
        "is_over",
    ),
    Branch("one of several effects was given up", "pwf.store.effects:_parts_go_on", "part, note ="),
    Branch("one of several effects is observed again", "pwf.store.effects:_observe_part", "_parts_go_on("),
    Branch("a person has an effect observed again", "pwf.store.effects:_observe", "run.observe ="),
    Branch("a person has an effect tried again", "pwf.store.effects:_go_on", "place.queue("),
    Branch("a person settles an effect of an ended run", "pwf.store.effects:_resolve", 'facts["run"] ='),
    Branch("a person gives an effect up", "pwf.store.effects:_give_up", "error = StepError("),
    # --- admission and time ---
    Branch(
        "an eighth admission is a new start",
        "pwf.store.queue:_in_order",
        "going_on = 0 if takes_new",
        "takes_new and bool(older)",
    ),
    Branch("a run is admitted and launched in one commit", "pwf.store.launch:launch_admitted", "add_runner("),
    Branch("a run is paused before its launch", "pwf.store.launch:_begin", "return Parked()"),
    Branch("a stop comes while an offer is open", SCHEDULER + "_handle_stop_run", "self._stops.append("),
    Branch("recovery waits for an open offer", SCHEDULER + "_answer", "self._asks.append("),
    Branch("an offer's seats come back", SCHEDULER + "_handle_offer_closed", "self._capacity.give_back("),
    # --- supervision ---
    Branch("a runner's time is over", SUPERVISOR + "_receive", "self._timed_out = "),
    Branch("a process stays for a further run", SUPERVISOR + "_give_back", "process.stay("),
    Branch(
        "its row had gone with its last word", SUPERVISOR + "_give_back", "process.stay(", "self._row_gone"
    ),
    Branch(
        "a process that would stay is ended", SUPERVISOR + "_end", "childless = ", "self._last_word.stays"
    ),
    Branch("a run can not be launched", SUPERVISOR + "_not_launched", "held = HoldRun("),
    Branch(
        "a write waits until the store takes it",
        "pwf.actors.runs.launching:Supervision.write",
        "warned = True",
    ),
    Branch("a runner is not proved dead", SUPERVISOR + "_settle", "self._world.log.error("),
    Branch(
        "recovery can not prove a death",
        "pwf.actors.runs.recovery:Recovery._end",
        "self._log(",
        "not proved",
    ),
    Branch("a renewal fails", "pwf.actors.claim.server_claim:ServerClaim._renew", "self._failed = True"),
    Branch(
        "a caller gives up before its command is taken",
        "pwf.actors.base.store_actor:StoreActor._serve",
        "if taken:",
        "len(taken) < len(entries)",
    ),
    Branch(
        "a batch is full",
        "pwf.actors.base.store_actor:StoreActor._serve",
        "if taken:",
        "len(entries) >= BATCH_MAX",
    ),
    Branch(
        "a sender waits for room in an inbox",
        "pwf.actors.base.mailbox:Mailbox.put",
        "self._senders[task] = item",
    ),
    # --- upkeep ---
    Branch("a tree of runs is pruned", "pwf.store.retention:_walk", "for member in members:"),
    Branch("a tree is kept since something needs it", "pwf.store.retention:_walk", "kept[reason] = "),
    Branch("unused values are dropped", "pwf.store.values:drop_values", "return sum("),
    Branch(
        "a value is uploaded that is here already",
        "pwf.store.values:put_chunk",
        "tx.run(Q.hold, held)",
        "_complete_size(tx, command.digest) is not None",
    ),
)


def install() -> list[str]:
    """Count from now on, in this process. The names of marks that have lost their place."""
    return list(_install())


@cache
def _install() -> tuple[str, ...]:
    lost: list[str] = []
    modules: dict[str, list[Branch]] = {}
    for branch in BRANCHES:
        modules.setdefault(branch.place.split(":")[0], []).append(branch)
    for name, branches in modules.items():
        lost += _mark(importlib.import_module(name), branches)
    return tuple(lost)


def _mark(module: ModuleType, branches: list[Branch]) -> list[str]:
    tree = ast.parse(inspect.getsource(module))
    lost = [branch.name for branch in branches if not _insert(tree, branch)]
    codes = dict(_codes(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec")))
    module.__dict__[COUNTER] = _count
    for place in {branch.place.split(":")[1] for branch in branches}:
        function = _function(module, place)
        if function is not None and place in codes:
            function.__code__ = codes[place]
    return lost


def _count(name: str) -> None:
    reached[name] += 1


def _insert(tree: ast.Module, branch: Branch) -> bool:
    """Put the counter before the first statement that begins so."""
    function: Any = tree
    for name in branch.place.split(":")[1].split("."):
        function = next((node for node in function.body if getattr(node, "name", None) == name), None)
        if function is None:
            return False
    left = branch.nth
    for body, index in _statements(function):
        if _plain(ast.unparse(body[index])).startswith(_plain(branch.before)):
            left -= 1
            if left:
                continue
            text = f"{COUNTER}({branch.name!r})"
            (mark,) = ast.parse(text if branch.when is None else f"if {branch.when}:\n  {text}").body
            ast.increment_lineno(mark, body[index].lineno - 1)
            body.insert(index, mark)
            return True
    return False


def _plain(text: str) -> str:
    return text.replace('"', "'")


def _statements(node: ast.AST) -> Iterator[tuple[list[ast.stmt], int]]:
    """Every statement below, in the order of the text."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        body = getattr(node, field, None)
        if not isinstance(body, list):
            continue
        for index, child in enumerate(body):
            if isinstance(child, ast.stmt):
                yield body, index
            yield from _statements(child)


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def _function(module: ModuleType, place: str) -> FunctionType | None:
    found: Any = module
    for name in place.split("."):
        found = inspect.getattr_static(found, name, None)
    return found if isinstance(found, FunctionType) else None
