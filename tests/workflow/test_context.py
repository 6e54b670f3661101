"""What a node's function sees of its run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.errors import InvalidArgument, InvalidInput, InvalidValue, PwfError, Rejected, ValueTooLarge
from pwf.protocol.runner import Value
from pwf.workflow.context import NotCompleted
from pwf.workflow.shell import Captured, ShellResult
from pwf.workflow.workflow import Workflow
from tests.workflow.author import HEAD, completed, context, failed, load, namespace_of

TEXT = """
class Input(msgspec.Struct):
    version: str
    tags: list[str] = []
class Review(msgspec.Struct):
    verdict: str
flow = Workflow("sample", input=Input, title=lambda ctx: f"release {ctx.input.version}")
@flow.shell(effect=idempotent("tests"))
def test(ctx): ...
@flow.compute
def review(ctx) -> Review: ...
@flow.compute
def free(ctx): ...
@flow.wait
def nap(ctx): ...
@flow.checkpoint(returns=dict[str, int])
def ask(ctx): ...
flow.graph(test >> review >> free >> nap >> ask)
"""


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    return namespace_of(tmp_path, TEXT)


@pytest.fixture
def flow(names: dict[str, Any]) -> Workflow[Any]:
    found = names["flow"]
    assert isinstance(found, Workflow)
    return found


def test_the_input_has_its_declared_type(flow: Workflow[Any], names: dict[str, Any]) -> None:
    ctx = context(flow, input={"version": "1.2"})
    assert ctx.input == names["Input"]("1.2", [])
    assert ctx.input is ctx.input


def test_an_input_of_another_type_names_the_path(flow: Workflow[Any]) -> None:
    with pytest.raises(InvalidInput, match=r"run's input.*got `int` - at `\$\.version`"):
        _ = context(flow, input={"version": 3}).input


def test_without_a_declared_type_the_input_is_plain_json(tmp_path: Path) -> None:
    flow = load(tmp_path, "@flow.compute\ndef x(ctx): ...")
    assert context(flow, input={"a": [1, None]}).input == {"a": [1, None]}


def test_outputs_come_back_as_their_types(flow: Workflow[Any], names: dict[str, Any]) -> None:
    result = ShellResult(stdout_captured=Captured.of(b"ok\n"))
    past = (
        completed("test", result),
        completed("review", {"verdict": "ship"}),
        completed("free", {"any": 1}),
        completed("nap", {"due_ms": 1_700_000_000_123}),
        completed("ask", {"a": 1}),
    )
    ctx = context(flow, "ask", past=past)
    assert ctx[names["test"]] == result
    assert ctx[names["test"]].stdout == "ok\n"
    assert ctx[names["review"]] == names["Review"]("ship")
    assert ctx["review"] is ctx[names["review"]]
    assert ctx[names["free"]] == {"any": 1}
    assert ctx[names["nap"]].due.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert dict(ctx.outputs)["ask"] == {"a": 1}
    assert list(ctx.outputs) == ["test", "review", "free", "nap", "ask"]
    assert len(ctx.results) == 5


def test_a_value_is_fetched_when_it_is_asked_for_and_once(flow: Workflow[Any]) -> None:
    fetched: list[Value] = []
    ctx = context(flow, "ask", past=(completed("free", 1), completed("review", {"verdict": "x"})))

    def read(value: Value) -> bytes:
        fetched.append(value)
        return b"7"

    object.__setattr__(ctx, "_read_value", read)
    assert fetched == []
    assert (ctx["free"], ctx["free"]) == (7, 7)
    assert len(fetched) == 1


def test_what_a_function_does_to_an_output_is_not_seen_by_the_next_attempt(flow: Workflow[Any]) -> None:
    past = (completed("free", [1]),)
    context(flow, "nap", past=past)["free"].append(2)
    assert context(flow, "ask", past=past)["free"] == [1]


def test_a_node_that_has_not_run_is_named_with_what_ran(flow: Workflow[Any], names: dict[str, Any]) -> None:
    ctx = context(flow, "review", past=(completed("test", ShellResult()),))
    with pytest.raises(NotCompleted) as caught:
        _ = ctx[names["free"]]
    assert caught.value.message == (
        "node 'review' asks for the output of 'free', which has not run; completed so far: 'test'"
    )
    assert "ctx.outputs.get" in (caught.value.hint or "")
    assert ctx.outputs.get(names["free"]) is None
    assert ctx.outputs.get("free", 5) == 5
    assert names["free"] not in ctx.outputs
    assert names["test"] in ctx.outputs
    with pytest.raises(LookupError):
        _ = ctx.results["free"]


def test_a_node_that_failed_has_a_result_and_no_output(flow: Workflow[Any], names: dict[str, Any]) -> None:
    ctx = context(flow, "review", past=(failed("test", "exit code 2"),))
    with pytest.raises(NotCompleted, match="ended as failed; completed so far: none"):
        _ = ctx[names["test"]]
    result = ctx.results[names["test"]]
    assert (result.outcome, result.output, result.visit) == ("failed", None, 1)
    assert result.error is not None
    assert result.error.message == "exit code 2"
    assert ctx.outputs.get(names["test"]) is None
    assert ctx.results.get("free") is None


def test_a_node_of_another_workflow_is_refused_even_by_the_same_name(
    flow: Workflow[Any], tmp_path: Path
) -> None:
    other = namespace_of(tmp_path, TEXT)["review"]
    with pytest.raises(InvalidArgument, match="node 'review' is not part of this workflow"):
        _ = context(flow, past=(completed("review", {"verdict": "x"}),))[other]
    with pytest.raises(InvalidArgument, match="reveiw") as caught:
        _ = context(flow)["reveiw"]
    assert caught.value.hint == "did you mean 'review'?"


def test_an_output_that_no_longer_fits_its_type_is_named(flow: Workflow[Any]) -> None:
    ctx = context(flow, "free", past=(completed("review", {"verdict": 3}),))
    with pytest.raises(InvalidValue, match="the output of node 'review' is not what its type says"):
        _ = ctx["review"]


@pytest.mark.parametrize("name", ["input", "run_id", "visit", "other"])
def test_ctx_is_read_only(flow: Workflow[Any], name: str) -> None:
    ctx = context(flow)
    with pytest.raises(AttributeError, match="read-only"):
        setattr(ctx, name, 1)
    with pytest.raises(AttributeError, match="read-only"):
        delattr(ctx, name)


def test_updates_are_canonical_json_within_bounds(flow: Workflow[Any]) -> None:
    sent: list[tuple[str, str, bytes]] = []
    ctx = context(flow, "test", publish=lambda *update: sent.append(update))
    ctx.publish("progress", "build", {"total": 4, "completed": 2})
    assert sent == [("progress", "build", b'{"completed":2,"total":4}')]
    with pytest.raises(ValueTooLarge, match="65,536"):
        ctx.publish("note", "build", "x" * 65_536)
    for wrong in ("", "x" * 129, 3):
        with pytest.raises(InvalidArgument):
            ctx.publish("progress", wrong, 1)  # type: ignore[arg-type]
    assert len(sent) == 1


def test_progress_is_an_update_of_one_shape(flow: Workflow[Any]) -> None:
    sent: list[tuple[str, str, bytes]] = []
    ctx = context(flow, "test", publish=lambda *update: sent.append(update))
    ctx.progress(3, 12, "files", label="copying", started=datetime(2030, 1, 1, tzinfo=UTC))
    ctx.progress(0.5, key="other")
    ctx.publish("progress", "free", {"phase": "linking"})
    assert [(kind, key, msgspec.json.decode(data)) for kind, key, data in sent] == [
        (
            "progress",
            "test",
            {
                "completed": 3,
                "total": 12,
                "unit": "files",
                "label": "copying",
                "started_ms": 1_893_456_000_000,
            },
        ),
        ("progress", "other", {"completed": 0.5}),
        ("progress", "free", {"phase": "linking"}),
    ]


@pytest.mark.parametrize(
    "wrong", [{"done": 3}, "half", {"completed": -1}, {"total": True}, {"label": "x" * 201}]
)
def test_progress_of_another_shape_is_an_error_of_the_call(flow: Workflow[Any], wrong: Any) -> None:
    ctx = context(flow, "test", publish=lambda *update: None)
    with pytest.raises(InvalidArgument, match="the progress 'build' has not the shape") as caught:
        ctx.publish("progress", "build", wrong)
    assert "ctx.progress(" in (caught.value.hint or "")


def test_a_node_without_effects_can_not_publish(flow: Workflow[Any]) -> None:
    with pytest.raises(Rejected, match="'review' can not publish") as caught:
        context(flow, "review").publish("note", "x", 1)
    assert "@flow.action" in (caught.value.hint or "")


def test_pinned_files_come_from_the_run(flow: Workflow[Any]) -> None:
    assert context(flow, read_file=lambda name: name.encode()).file("a.txt") == b"a.txt"
    with pytest.raises(Rejected, match="no pinned files"):
        context(flow).file("a.txt")


@pytest.mark.parametrize(
    ("returned", "title"),
    [("a\nb\t c", "a b c"), ("x" * 300, "x" * 199 + "…"), ("", None), ("\x1b[31mred", "[31mred")],
)
def test_a_title_is_one_short_line(tmp_path: Path, returned: str, title: str | None) -> None:
    flow = load(
        tmp_path, f"flow = Workflow('s', title=lambda ctx: {returned!r})\n@flow.compute\ndef x(ctx): ..."
    )
    assert flow.title_of(context(flow)) == title


def test_a_title_that_is_no_text_is_refused(tmp_path: Path) -> None:
    flow = load(tmp_path, "flow = Workflow('s', title=lambda ctx: 3)\n@flow.compute\ndef x(ctx): ...")
    with pytest.raises(InvalidValue, match="title= of workflow 's' returned 3"):
        flow.title_of(context(flow))


# --- what a node returns -------------------------------------------------------------------------------------


def test_a_returned_value_must_fit_the_declared_type(flow: Workflow[Any], names: dict[str, Any]) -> None:
    review = flow.nodes["review"]
    assert review.output_bytes(names["Review"]("ship")) == b'{"verdict":"ship"}'
    assert review.output_bytes({"verdict": "ship"}) == b'{"verdict":"ship"}'
    for wrong in (names["Review"](3), {"verdict": 3}, None):
        with pytest.raises(
            InvalidValue, match="node 'review' returned something else than its declared type"
        ):
            review.output_bytes(wrong)
    assert flow.nodes["free"].output_bytes({"b": 1, "a": None}) == b'{"a":null,"b":1}'
    with pytest.raises(InvalidValue, match=r"the output of node 'free'\.a is nan"):
        flow.nodes["free"].output_bytes({"a": float("nan")})
    with pytest.raises(ValueTooLarge, match="the output of node 'free' has 12 bytes; the limit is 5"):
        flow.nodes["free"].output_bytes("x" * 10, limit=5)


def test_a_json_schema_is_a_type_too(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    node = load(tmp_path, f"@flow.compute(returns={schema!r})\ndef x(ctx): ...").nodes["x"]
    assert node.spec.returns == schema
    assert node.output_bytes({"a": 1}) == b'{"a":1}'
    with pytest.raises(InvalidValue, match=r"at `\$\.a`"):
        node.output_bytes({"a": "1"})


def test_an_observed_value_of_a_shell_node_becomes_a_shell_result(flow: Workflow[Any]) -> None:
    data = flow.nodes["test"].output_bytes({"seen": True})
    ctx = context(flow, past=(completed("test", flow.nodes["test"].decode(data)),))
    assert ctx["test"].parsed == {"seen": True}
    assert ctx["test"].exit_code == 0


def test_observe_must_answer_with_one_of_three(tmp_path: Path) -> None:
    text = "@flow.action(effect=manual('x', observe=lambda ctx: 1))\ndef x(ctx): ..."
    node = load(tmp_path, text).nodes["x"]
    assert node.effect is not None
    assert node.effect.observable
    with pytest.raises(InvalidValue, match="observe of node 'x' returned True") as caught:
        node.observation(True)
    assert "not_applied()" in (caught.value.hint or "")


def test_a_node_can_be_called_like_its_function(names: dict[str, Any], flow: Workflow[Any]) -> None:
    assert names["review"](context(flow)) is None


# --- finding the workflow ------------------------------------------------------------------------------------


def test_a_file_without_a_workflow_is_a_helper(tmp_path: Path) -> None:
    with pytest.raises(PwfError, match="defines no workflow") as caught:
        load(tmp_path, "x = 1", head="")
    assert caught.value.code == "no_workflow"


def test_a_file_holds_one_workflow(tmp_path: Path) -> None:
    with pytest.raises(PwfError, match=r"defines 2 workflows: 'sample' \(line 4\), 'b' \(line 5\)"):
        load(tmp_path, "other = Workflow('b')")


def test_an_imported_workflow_does_not_count_beside_the_files_own(tmp_path: Path) -> None:
    imported = namespace_of(tmp_path, "@flow.compute\ndef x(ctx): ...", name="other.py")["flow"]
    namespace = namespace_of(tmp_path, "@flow.compute\ndef y(ctx): ...\nagain = flow")
    namespace["imported"] = imported
    from pwf.workflow.load import find_workflow

    assert find_workflow(namespace) is namespace["flow"]
    del namespace["flow"], namespace["again"]
    assert find_workflow(namespace) is imported


def test_the_graph_as_data_says_where_things_stand(tmp_path: Path) -> None:
    graph = load(
        tmp_path, '@flow.compute\ndef x(ctx):\n    """Counts.\n\n    More."""', head='"""Doc."""\n' + HEAD
    ).to_graph()
    assert (graph.file, graph.doc, graph.start) == (str(tmp_path / "sample.py"), "Doc.", "x")
    assert (graph.nodes[0].line, graph.nodes[0].doc, graph.nodes[0].kind) == (6, "Counts.", "compute")
