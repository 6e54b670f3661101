"""Each rule of the auditor's model of code is broken once, and a campaign's worlds edit their files."""

from __future__ import annotations

from types import SimpleNamespace

from tests.sim.stage import answer, breaks
from tests.sim.world import World
from tests.store.world import graph, node


def a_run(stage):
    stage.run()
    return next(iter(stage.auditor.runs.values()))


def test_a_run_whose_code_becomes_another_is_seen(stage):
    a_run(stage)
    other = stage.store.define(graph(node("a"), max_steps=7))
    stage.store.sql("UPDATE runs SET definition_id = :other", {"other": other})
    with breaks("keeps the code that it started with"):
        stage.doctor("UPDATE runs SET hold = hold")
        stage.look()


def test_a_start_with_code_from_before_an_edit_is_seen(stage):
    run = a_run(stage)
    stage.code.edits = 1
    request = stage.sent("run.start", {"workflow": "flow", "input": {}})
    with breaks("has code of edition 0, and was asked for at 1"):
        stage.auditor.answered(request, answer(request, "accepted", run_id=run.run_id))


def test_a_start_with_code_from_before_an_edit_that_came_after_it_was_asked_for_is_right(stage):
    run = a_run(stage)
    request = stage.sent("run.start", {"workflow": "flow", "input": {}})
    stage.code.edits = 1
    stage.auditor.answered(request, answer(request, "accepted", run_id=run.run_id))


def test_a_fork_with_stored_code_that_has_other_code_is_seen(stage):
    run = a_run(stage)
    stage.auditor.runs["fork"] = run._replace(run_id="fork", definition="other")
    request = stage.sent("run.fork", {"code": "stored"}, run.run_id)
    with breaks("a fork with stored code has that of"):
        stage.auditor.code.told(request, "fork")


def test_a_process_that_has_loaded_other_code_than_its_runs_is_seen(stage):
    run = a_run(stage)
    with breaks("has loaded the code of"):
        stage.auditor.code.launched(SimpleNamespace(code="other", marker="m"), None, run)


def test_a_launch_with_another_graph_is_seen(stage):
    run = a_run(stage)._replace(definition="d")
    stage.code.known["d"].definition = SimpleNamespace(graph=stage.graph)
    process, launch = SimpleNamespace(code="d", marker="m"), SimpleNamespace(graph=graph(node("b")))
    with breaks("is told the graph of"):
        stage.auditor.code.launched(process, launch, run)


def test_a_template_that_is_given_another_text_is_seen(stage):
    with breaks("d has its recorded text"):
        source = SimpleNamespace(text=b"edited")
        stage.auditor.code.loaded("d", SimpleNamespace(definition_id="d", sources=[source]))


def test_an_edit_is_another_definition_under_the_same_name_and_its_files_mark_is_another(tmp_path):
    code = next(world.code for seed in range(99) if (world := World(seed, tmp_path)).code.every_s)
    (name, model), *_ = code.current.items()
    before = code.mark_of(lambda path: None, model.path)
    seen = {model.definition.definition_id}
    for _ in range(6):
        code._world = SimpleNamespace(fault=lambda *a, **k: None)
        code._edit(name)
        assert code.current[name].definition.definition_id not in seen
        seen.add(code.current[name].definition.definition_id)
        assert code.mark_of(lambda path: None, model.path) != before
    assert [code.edition(name, one) for one in code._editions[name]] == list(range(7))
    assert code.mark_of(lambda path: path, "/elsewhere") == "/elsewhere"
