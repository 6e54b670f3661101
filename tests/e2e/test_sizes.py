"""Values that are large, and values that are too large (S5)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from pwf.errors import ValueTooLarge
from pwf.protocol.forks import ForkPayload
from tests.e2e.world import World, serving

pytestmark = pytest.mark.rest  # each with daemons of its own, or for a second and more

MB = 1_000_000
DAEMON_BYTES_MAX = 200 * MB

LARGE = """
import hashlib

flow = Workflow("large")

@flow.compute
def small(ctx):
    return "small"

@flow.compute
def make(ctx):
    return "x" * ctx.input

@flow.compute
def use(ctx):
    return [len(ctx[make]), hashlib.sha256(ctx[make].encode()).hexdigest(), ctx[small]]

flow.graph(small >> make >> use)
"""


ASKS_BETWEEN = LARGE.replace(
    "flow.graph(small >> make >> use)",
    """
@flow.checkpoint
def ask(ctx):
    return "go on?"

flow.graph(small >> make >> ask >> use)
""",
)


def _peak_bytes(world: World) -> int:
    """The most memory that the daemon has had since it started."""
    with open(f"/proc/{world.home.pid}/status") as file:
        line = next(line for line in file if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize(
    ("name", "value", "least"),
    [
        ("of_300_mb", "'x' * 300_000_000", "300,000,002"),
        ("of_3_gb", "['x' * 10_000_000] * 300", "70,000,"),  # counting ends when the limit is passed
    ],
)
def test_an_output_that_is_too_large_is_an_error_that_names_step_size_and_limit(
    world: World, name: str, value: str, least: str
) -> None:
    world.home.workflow(name, LARGE.replace('"x" * ctx.input', value))

    run_id = world.start(name)
    world.finish(run_id, "failed")

    view = world.view(run_id)
    assert view.error is not None
    assert (view.error.code, view.error.node) == ("value_too_large", "make")
    assert least in view.error.message
    assert f"{64 * 1024 * 1024:,}" in view.error.message
    small = next(step.output for step in view.steps if step.node == "small")
    assert small is not None
    assert world.client.read_value(run_id, small) == b'"small"'
    assert _peak_bytes(world) < DAEMON_BYTES_MAX


def test_an_output_of_20_mb_is_kept_by_reference_given_to_later_steps_and_read_back_whole(
    world: World,
) -> None:
    world.home.workflow("large", LARGE)
    run_id = world.start("large", 20 * MB)

    length, digest, small = world.output(run_id)

    assert (length, small) == (20 * MB, "small")
    made = next(step.output for step in world.view(run_id).steps if step.node == "make")
    assert made is not None
    assert made.digest is not None
    assert made.size == 20 * MB + 2
    data = world.client.read_value(run_id, made)
    assert data == b'"' + b"x" * (20 * MB) + b'"'
    assert len(digest) == 64
    assert _peak_bytes(world) < DAEMON_BYTES_MAX


def test_a_large_result_is_printed_whole_by_show_and_only_named_by_run(world: World) -> None:
    world.home.workflow(
        "big_result",
        """
flow = Workflow("big_result")

@flow.compute
def big(ctx):
    return ["ä" * 1000] * 2000
""",
    )
    said = world.home.run("run", "big_result").stdout
    assert len(said) < 4096
    assert "see it with:  pwf output" in said
    run_id = world.home.json("ls", "--limit", "1")["runs"][0]["run_id"]
    shown = world.home.run("show", run_id, "--output", "--json").stdout
    assert msgspec.json.decode(shown) == ["ä" * 1000] * 2000


def test_a_run_reads_a_large_output_again_after_the_daemon_was_killed(world: World) -> None:
    world.home.workflow("large_then_ask", ASKS_BETWEEN)
    run_id = world.start("large_then_ask", 5 * MB)
    world.question(run_id)
    world.kill_daemon()
    world.answer(run_id, None)
    assert world.output(run_id)[0] == 5 * MB


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A world that takes values up to 64 KiB."""
    with serving(tmp_path_factory.mktemp("strict"), "max_value_bytes = 65536\n") as world:
        world.home.workflow("large", LARGE)
        yield world
        world.check()


def test_an_input_above_the_limit_is_refused_before_any_row_exists(strict: World) -> None:
    before = strict.client.call("state.status").rows
    with pytest.raises(ValueTooLarge, match="65,536"):
        strict.start("large", "x" * 100_000)
    assert strict.client.call("state.status").rows == before


def test_an_input_and_an_answer_that_fit_in_no_frame_are_sent_in_pieces(world: World) -> None:
    world.home.workflow("pieces", PIECES)
    path = world.home.project / "input.json"
    path.write_text('"' + "x" * 3 * MB + '"')
    run_id = world.home.json("run", "pieces", "--input", f"@{path}", "--key", "in pieces", "--detach")[
        "run_id"
    ]
    world.kill_daemon()  # the next has nothing of what was sent, and the start was acknowledged
    again = world.home.json("run", "pieces", "--input", f"@{path}", "--key", "in pieces", "--detach")
    assert (again["run_id"], again["adopted"]) == (run_id, True)
    world.answer(run_id, "y" * 2 * MB)
    assert world.output(run_id) == [3 * MB, 2 * MB]
    forked = world.client.call(
        "run.fork", ForkPayload(node="ask", input=msgspec.Raw(b'"' + b"z" * 4 * MB + b'"')), run_id=run_id
    )
    world.answer(forked.run_id, "short")
    assert world.output(forked.run_id) == [4 * MB, 5]


def test_what_is_sent_in_pieces_has_the_same_limit_as_what_is_not(strict: World) -> None:
    before = strict.client.call("state.status").rows
    with pytest.raises(ValueTooLarge, match=f"the input has {3 * MB + 2:,} bytes; the limit is 65,536"):
        strict.start("large", "x" * 3 * MB)
    assert strict.client.call("state.status").rows == before


PIECES = """
flow = Workflow("pieces")

@flow.checkpoint
def ask(ctx):
    return "?"

@flow.compute
def sizes(ctx):
    return [len(ctx.input), len(ctx[ask])]

flow.graph(ask >> sizes)
"""


def test_an_answer_above_the_limit_is_refused_and_the_question_stays_open(strict: World) -> None:
    strict.home.workflow(
        "asks",
        """
flow = Workflow("asks")

@flow.checkpoint
def ask(ctx):
    return "?"
""",
    )
    run_id = strict.start("asks")
    question = strict.question(run_id)
    with pytest.raises(ValueTooLarge, match="65,536"):
        strict.client.answer(question.request_id, "x" * 100_000)
    strict.answer(run_id, "short")
    assert strict.output(run_id) == "short"
