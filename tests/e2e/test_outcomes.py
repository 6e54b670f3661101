"""Each class of failure is told apart, and recorded where a person looks.

`source_changed` is shown by test_code.py, `claim_lost` and `unavailable` by the tests of store and listener.
"""

from __future__ import annotations

import pytest

from tests.e2e.world import World

ONE = """
import os, signal, sys, time

flow = Workflow("{name}")

@flow.action(effect={effect}("x"){options})
def work(ctx):
    {body}
"""


def start(world: World, name: str, body: str, effect: str = "idempotent", options: str = "") -> str:
    world.home.workflow(name, ONE.format(name=name, effect=effect, options=options, body=body))
    return world.start(name)


@pytest.mark.parametrize(
    ("name", "body", "how"),
    [
        ("segfault", "return os.kill(os.getpid(), signal.SIGSEGV) if ctx.attempt == 1 else 1", "SIGSEGV"),
        ("killed", "return os.kill(os.getpid(), signal.SIGKILL) if ctx.attempt == 1 else 1", "SIGKILL"),
        ("leaves", "return os._exit(3) if ctx.attempt == 1 else 1", "exit status 3"),
    ],
)
def test_a_runner_that_crashed_says_what_it_died_of(world: World, name: str, body: str, how: str) -> None:
    run_id = start(world, name, body)
    world.finish(run_id)
    crashed, done = world.attempts(run_id)
    assert (crashed.status, done.status) == ("failed", "completed")
    assert crashed.error is not None
    assert crashed.error.code == "runner_crashed"
    assert how in crashed.error.message
    assert how in crashed.summary


def test_a_step_that_takes_its_process_with_it_is_tried_as_often_as_retry_says_then_the_failed_way_applies(
    world: World,
) -> None:
    world.home.workflow(
        "deadly",
        """
import os, signal

flow = Workflow("deadly")

@flow.action(effect=idempotent("die"), retry=Retry(1, backoff=seconds(0)))
def die(ctx):
    os.kill(os.getpid(), signal.SIGKILL)

@flow.compute
def rescue(ctx):
    return ctx.results[die].error.message

flow.graph(die.on("failed") >> rescue)
""",
    )
    run_id = world.start("deadly")
    assert "SIGKILL" in world.output(run_id)
    assert world.steps(run_id) == [("die", "failed"), ("die", "failed"), ("rescue", "completed")]


@pytest.mark.parametrize(
    ("name", "body", "options", "status", "code"),
    [
        ("raises", "raise RuntimeError('no')", "", "failed", "node_failed"),
        ("too_slow", "time.sleep(60)", ", timeout=seconds(0.3)", "timed_out", "runner_timed_out"),
        (
            "babbles",  # a step that speaks on its runner's socket is no runner that pwf understands
            "return [os.write(n, b'rubbish\\n') for n in range(3, 64) if is_socket(n)]",
            "",
            "interrupted",
            "protocol_rejected",
        ),
    ],
)
def test_a_step_that_failed_has_the_code_of_what_happened(
    world: World, name: str, body: str, options: str, status: str, code: str
) -> None:
    world.home.workflow(
        name,
        "import stat\ndef is_socket(n):\n    try:\n        return stat.S_ISSOCK(os.fstat(n).st_mode)\n"
        "    except OSError:\n        return False\n"
        + ONE.format(name=name, effect="idempotent", options=options, body=body),
    )
    run_id = world.start(name)
    result = world.client.wait(run_id, until="parked", timeout_s=60)
    assert result.done
    first = world.attempts(run_id)[0]
    assert first.status == status
    assert first.error is not None
    assert first.error.code == code


def test_an_effect_whose_outcome_nobody_knows_is_ambiguous_with_its_reason(world: World) -> None:
    run_id = start(world, "unknown", "os.kill(os.getpid(), signal.SIGKILL)", effect="manual")
    assert world.parked(run_id, "ambiguous").summary.hold == "effect_ambiguous"
    explanation = world.client.call("run.status", run_id=run_id).explanation
    assert explanation.code == "effect_ambiguous"
    assert f"pwf recover {run_id} happened --output JSON" in explanation.commands
    assert [effect.status for effect in world.view(run_id).effects] == ["ambiguous"]
    world.client.call("run.cancel", run_id=run_id)
