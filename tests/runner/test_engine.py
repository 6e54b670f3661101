"""The engine's loop: order, pipelining, replies, routing, what a node sees."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from typing import Any, Literal

import msgspec
import pytest

from pwf.errors import NotFound, Rejected
from pwf.host import kernel_threads
from pwf.protocol.runner import UPDATES_MAX, Ask, Finish, Leaving, PutChunk, Titled, WaitUntil
from pwf.values import canonical, digest
from pwf.workflow.effects import idempotent
from pwf.workflow.timing import Retry, seconds
from pwf.workflow.workflow import Workflow
from tests.runner.peer import MemoryRun, memory_run, run_forked, run_inline


def chain(*names: str, **options: Any) -> Workflow[Any]:
    flow: Workflow[Any] = Workflow("chain", **options)
    nodes = []
    for name in names:

        def node(ctx: Any) -> dict[str, Any]:
            return {"node": ctx.node, "visit": ctx.visit, "attempt": ctx.attempt}

        node.__name__ = name
        nodes.append(flow.compute(node))
    if len(nodes) > 1:
        flow.graph(*(a >> b for a, b in itertools.pairwise(nodes)))
    return flow


def test_one_compute_node_runs_and_ends() -> None:
    flow = chain("only")
    run = run_inline(flow, memory_run(flow))
    assert run.status == "completed"
    assert [(f.seq, f.attempt, f.outcome, f.next) for f in run.finishes] == [(1, 1, "completed", None)]
    assert run.output == {"node": "only", "visit": 1, "attempt": 1}


def test_outputs_of_earlier_nodes_are_seen_before_they_are_acknowledged() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def one(ctx: Any) -> int:
        return 20

    @flow.compute
    def two(ctx: Any) -> int:
        return int(ctx[one]) + 1

    @flow.compute
    def three(ctx: Any) -> dict[str, Any]:
        return {"sum": ctx[one] + ctx[two], "ids": list(ctx.outputs), "how": ctx.results[one].outcome}

    flow.graph(one >> two, two >> three)
    run = run_inline(flow, memory_run(flow), seed=3)
    assert run.output == {"sum": 41, "ids": ["one", "two"], "how": "completed"}


def test_pure_nodes_go_ahead_of_their_replies_and_others_wait_for_all() -> None:
    started: list[tuple[str, int]] = []
    flow: Workflow[Any] = Workflow("w")

    def note(ctx: Any) -> None:
        started.append((ctx.node, sum(isinstance(message, Finish) for message in run.received)))

    @flow.compute
    def a(ctx: Any) -> None:
        note(ctx)

    @flow.compute
    def b(ctx: Any) -> None:
        note(ctx)

    @flow.action(effect=idempotent("x"))
    def c(ctx: Any) -> None:
        note(ctx)

    flow.graph(a >> b, b >> c)
    run = memory_run(flow)
    run_inline(flow, run)
    assert [name for name, _ in started] == ["a", "b", "c"]
    assert started[2] == ("c", 2), "an action starts when both earlier transitions are known to the daemon"


@pytest.mark.parametrize("verdict", ["park", "claim_lost", "refused"])
def test_after_any_reply_but_go_nothing_more_runs(verdict: str) -> None:
    ran: list[str] = []
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def a(ctx: Any) -> None:
        ran.append("a")

    @flow.action(effect=idempotent("x"))
    def b(ctx: Any) -> None:
        ran.append("b")

    flow.graph(a >> b)
    run = run_inline(flow, memory_run(flow, decide=lambda message: verdict))
    assert ran == ["a"]
    assert len(run.finishes) == 1


def test_a_parked_run_goes_on_in_the_next_generation_with_what_is_recorded() -> None:
    flow = chain("a", "b", "c")
    parked_once: list[int] = []

    def decide(message: Any) -> str | None:
        if isinstance(message, Finish) and message.attempt == 2 and not parked_once:
            parked_once.append(1)
            return "park"
        return None

    run = memory_run(flow, decide=decide)
    run_inline(flow, run)
    assert (run.status, run.node) == ("parked", "c")
    run_inline(flow, run)
    assert run.status == "completed"
    assert run.output == {"node": "c", "visit": 1, "attempt": 3}


def test_a_node_learns_the_number_of_its_try_and_the_next_one_begins_with_the_first() -> None:
    seen: list[int] = []
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def first(ctx: Any) -> None:
        seen.append(ctx.tries)

    @flow.compute
    def second(ctx: Any) -> None:
        seen.append(ctx.tries)

    flow.graph(first >> second)
    run_inline(flow, memory_run(flow, tries=3))
    assert seen == [3, 1]


def test_a_failed_try_with_retry_left_is_left_to_the_daemon() -> None:
    tries: list[int] = []
    flow: Workflow[Any] = Workflow("w")

    @flow.compute(retry=Retry(times=1))
    def flaky(ctx: Any) -> str:
        tries.append(ctx.attempt)
        if len(tries) < 2:
            raise ValueError("not yet")
        return "done"

    @flow.compute
    def sorry(ctx: Any) -> None: ...

    flow.graph(flaky.on("failed") >> sorry)
    run = memory_run(flow)
    run_inline(flow, run)
    assert (run.status, tries) == ("parked", [1])
    run_inline(flow, run)
    assert (run.status, tries, run.output) == ("completed", [1, 2], "done")


def test_the_failed_way_out_leads_on() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def bad(ctx: Any) -> None:
        raise ValueError("no")

    @flow.compute
    def sorry(ctx: Any) -> str:
        result = ctx.results[bad]
        return f"{result.outcome}: {result.error.message}"

    flow.graph(bad.on("failed") >> sorry)
    run = run_inline(flow, memory_run(flow))
    assert (run.status, run.output) == ("completed", "failed: no")


def test_an_output_stays_after_a_later_visit_failed() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def twice(ctx: Any) -> int:
        if ctx.visit == 2:
            raise ValueError
        return 41

    @flow.compute
    def after(ctx: Any) -> list[Any]:
        return [ctx[twice], ctx.results[twice].outcome]

    flow.graph(twice >> twice, twice.on("failed") >> after)
    parks = iter([None, "park"])
    run = memory_run(flow, decide=lambda message: next(parks, None))
    run_inline(flow, run)
    if run.status == "parked":
        run_inline(flow, run)
    assert run.output == [41, "failed"]


def test_a_switch_follows_the_output_and_a_loop_counts_visits() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def count(ctx: Any) -> Literal["again", "stop"]:
        return "again" if ctx.visit < 5 else "stop"

    @flow.compute
    def end(ctx: Any) -> int:
        return int(ctx.attempt)

    flow.graph(count.switch(again=count, stop=end))
    run = run_inline(flow, memory_run(flow), seed=1)
    assert (run.status, run.output, run.visits) == ("completed", 6, {"count": 5, "end": 1})


def test_a_value_without_a_case_is_a_routing_error_that_names_value_and_cases() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def pick(ctx: Any) -> Any:
        return "blue"

    @flow.compute
    def red(ctx: Any) -> None: ...

    flow.graph(pick.switch(red=red))
    run = run_inline(flow, memory_run(flow))
    error = run.last.route_error
    assert run.last.outcome == "completed"
    assert run.last.next is None
    assert error is not None
    assert (error.code, error.node) == ("routing_failed", "pick")
    assert "'blue'" in error.message
    assert "'red'" in error.message


def test_an_endless_loop_of_pure_nodes_stops_at_max_steps_without_running_ahead() -> None:
    ran: list[int] = []
    flow: Workflow[Any] = Workflow("w", max_steps=7)

    @flow.compute
    def spin(ctx: Any) -> None:
        ran.append(ctx.visit)

    flow.graph(spin >> spin)
    run = run_inline(flow, memory_run(flow))
    assert run.status == "failed"
    assert ran == [1, 2, 3, 4, 5, 6, 7]


def test_at_most_64_transitions_are_unacknowledged() -> None:
    flow: Workflow[Any] = Workflow("w", max_steps=500)
    seen: list[int] = []

    @flow.compute
    def spin(ctx: Any) -> Literal["more", "out"]:
        seen.append(ctx.visit)
        return "more" if ctx.visit < 300 else "out"

    @flow.compute
    def out(ctx: Any) -> None: ...

    flow.graph(spin.switch(more=spin, out=out))
    ahead: list[int] = []

    def decide(message: Any) -> None:
        ahead.append(len(seen) - len(ahead))

    run = run_inline(flow, memory_run(flow, decide=decide), seed=9)
    assert run.status == "completed"
    assert max(ahead) <= 66  # 64 under way, one being sent, one being run


def test_a_large_output_is_sent_in_chunks_once_and_read_back() -> None:
    text = "x" * 700_000
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def big(ctx: Any) -> str:
        return text

    @flow.compute
    def same(ctx: Any) -> str:
        return str(ctx[big])

    @flow.compute
    def length(ctx: Any) -> int:
        return len(ctx[big])

    flow.graph(big >> same, same >> length)
    run = run_inline(flow, memory_run(flow))
    chunks = [message for message in run.received if isinstance(message, PutChunk)]
    assert [chunk.index for chunk in chunks] == [0, 1, 2], "the second output has the same content"
    assert [f.output.digest for f in run.finishes[:2] if f.output] == [digest(canonical(text))] * 2
    assert run.output == 700_000


def test_a_refused_upload_stops_the_runner_before_the_transition() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def big(ctx: Any) -> str:
        return "x" * 10_000

    run = run_inline(flow, memory_run(flow, decide=lambda message: "refused"))
    assert run.finishes == []


def test_larger_values_of_earlier_generations_come_over_the_values_socket() -> None:
    flow: Workflow[Any] = Workflow("w", input=dict[str, str])
    seen: list[int] = []

    @flow.action(effect=idempotent("x"))
    def first(ctx: Any) -> str:
        seen.append(len(ctx.input["text"]))
        return "y" * 300_000

    @flow.action(effect=idempotent("x"))
    def second(ctx: Any) -> int:
        return len(ctx[first]) + len(ctx.input["text"])

    flow.graph(first >> second)
    parks = iter(["park"])

    def decide(message: Any) -> str | None:
        return next(parks, None) if isinstance(message, Finish) else None

    run = memory_run(flow, {"text": "z" * 50_000}, decide=decide)
    run_inline(flow, run)
    run_inline(flow, run)
    assert (run.status, seen, run.output) == ("completed", [50_000], 350_000)


def test_pinned_files_are_read_by_name_and_unknown_names_are_told() -> None:
    flow: Workflow[Any] = Workflow("w", files=["data/*"])

    @flow.compute
    def read(ctx: Any) -> list[str]:
        found = [ctx.file("data/a.bin").hex()]
        try:
            ctx.file("data/b.bin")
        except NotFound as error:
            found.append(str(error))
        return found

    run = memory_run(flow)
    run.options["files"] = {"data/a.bin": run.content(b"\x00\xff")}
    run_inline(flow, run)
    assert run.output[0] == "00ff"
    assert "data/b.bin" in run.output[1]
    assert "data/a.bin" in run.output[1]


def test_a_title_is_made_once_and_sent_before_the_first_step() -> None:
    made: list[int] = []

    def title(ctx: Any) -> str:
        made.append(1)
        return f"for {ctx.input}"

    flow = chain("a", "b", title=title)
    run = run_inline(flow, memory_run(flow, "me"))
    assert made == [1]
    assert isinstance(run.received[0], Titled)
    assert run.title == "for me"


def test_a_title_that_fails_does_not_fail_the_run() -> None:
    flow = chain("a", title=lambda ctx: 1 / 0)
    run = run_inline(flow, memory_run(flow))
    assert (run.status, run.title) == ("completed", None)


def test_a_wait_node_sends_its_timer_and_parks() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.wait
    def pause(ctx: Any) -> Any:
        return seconds(2)

    run = run_inline(flow, memory_run(flow))
    [timer] = [message for message in run.received if isinstance(message, WaitUntil)]
    assert (timer.delay_ms, timer.wall_ms, run.status) == (2_000, None, "timer")


def test_a_wait_node_without_a_time_fails() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.wait
    def pause(ctx: Any) -> Any:
        return 5

    run = run_inline(flow, memory_run(flow))
    assert run.last.outcome == "failed"
    assert run.last.error is not None
    assert "pause" in run.last.error.message


def test_a_checkpoint_asks_its_question_and_parks() -> None:
    flow: Workflow[Any] = Workflow("w")

    class Answer(msgspec.Struct):
        ok: bool

    @flow.checkpoint(returns=Answer)
    def gate(ctx: Any) -> Any:
        return {"text": "q" * 5_000}

    run = run_inline(flow, memory_run(flow))
    [ask] = [message for message in run.received if isinstance(message, Ask)]
    assert run.status == "waiting"
    assert run.read(ask.prompt) == {"text": "q" * 5_000}
    assert ask.kind == "checkpoint"
    assert ask.schema == flow.to_graph().node("gate").returns


def test_an_agent_node_asks_with_its_prompt_and_the_type_and_parks() -> None:
    flow: Workflow[Any] = Workflow("w")

    class Review(msgspec.Struct):
        ship: bool

    @flow.agent(returns=Review)
    async def review(ctx: Any) -> str:
        return "Look at it."

    run = run_inline(flow, memory_run(flow))
    [ask] = [message for message in run.received if isinstance(message, Ask)]
    assert run.status == "waiting"
    assert (run.read(ask.prompt), ask.kind) == ("Look at it.", "agent")
    assert ask.schema == flow.to_graph().node("review").returns
    assert ask.schema["$defs"]["Review"]["additionalProperties"] is False


@pytest.mark.parametrize("prompt", [None, "  ", {"text": "x"}, 1])
def test_a_prompt_that_is_no_text_fails_the_attempt(prompt: Any) -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.agent(returns=bool)
    def review(ctx: Any) -> str:
        return prompt  # type: ignore[no-any-return]

    run = run_inline(flow, memory_run(flow))
    assert run.last.outcome == "failed"
    assert run.last.error is not None
    assert "the prompt of node 'review' is" in run.last.error.message


def test_ctx_publish_sends_the_newest_of_each_key_before_the_transition() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=idempotent("x"))
    def act(ctx: Any) -> None:
        for n in range(1_000):
            ctx.publish("note", "main", {"n": n})
        ctx.publish("note", "other", {"n": 0})

    run = run_inline(flow, memory_run(flow))
    assert len(run.updates) < 30
    assert ("note", "main", {"n": 999}) in run.updates
    assert ("note", "other", {"n": 0}) in run.updates
    assert isinstance(run.received[-1], Finish)


def test_one_current_update_too_many_is_an_error_at_the_call_and_known_ones_still_change() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=idempotent("x"))
    def act(ctx: Any) -> str:
        for n in range(UPDATES_MAX - 2):
            ctx.publish("note", f"k{n}", n)
        ctx.publish("note", "earlier", 1)
        with pytest.raises(Rejected, match="one more than the 64 current ones") as refused:
            ctx.publish("note", "more", 1)
        return str(refused.value.hint)

    run = memory_run(flow, updates=(("note", "earlier"), ("status", "earlier")))
    assert "type and key that are there already" in run.read(run_inline(flow, run).last.output)
    assert len({(kind, key) for kind, key, _ in run.updates}) == UPDATES_MAX - 1
    assert ("note", "earlier", 1) in run.updates


def test_a_step_that_published_leaves_no_thread_behind() -> None:
    flow: Workflow[Any] = Workflow("w")
    threads: list[int] = []

    @flow.action(effect=idempotent("x"))
    def act(ctx: Any) -> None:
        threads.append(kernel_threads())
        for n in range(100):
            ctx.publish("note", "main", {"n": n})
        threads.append(kernel_threads())

    run_inline(flow, memory_run(flow))
    deadline = time.monotonic() + 10  # the peer of the run was one of them, too
    while kernel_threads() >= threads[0] and time.monotonic() < deadline:
        time.sleep(0.001)
    assert threads[1] == threads[0] + 1
    assert time.monotonic() < deadline


def test_an_update_that_waits_goes_out_while_the_step_still_runs() -> None:
    flow: Workflow[Any] = Workflow("w")
    seen: list[int] = []

    @flow.action(effect=idempotent("x"))
    def act(ctx: Any) -> None:
        ctx.publish("note", "main", {"n": 1})
        ctx.publish("note", "main", {"n": 2})
        deadline = time.monotonic() + 5
        while len(run.updates) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        seen.append(len(run.updates))

    run = memory_run(flow)
    run_inline(flow, run)
    assert seen == [2]


def test_a_forked_runner_enters_the_root_and_leaves_childless(tmp_path: Any) -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.compute
    def where(ctx: Any) -> str:
        return os.getcwd()

    run = run_forked(flow, memory_run(flow, root=str(tmp_path)))
    assert run.output == str(tmp_path)
    assert run.leaving == Leaving(childless=True)


def test_what_a_step_left_running_is_ended_before_the_runner_leaves() -> None:
    flow: Workflow[Any] = Workflow("w")

    @flow.action(effect=idempotent("x"))
    def spawn(ctx: Any) -> int:
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        return child.pid

    run: MemoryRun = run_forked(flow, memory_run(flow))
    assert run.leaving == Leaving(childless=True)
    with pytest.raises(ProcessLookupError):
        os.kill(run.output, 0)
