"""The parts that touch a real daemon: clones are sound runs, load is answered, and the quickest questions run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.bench import Bench
from benchmarks.cache import filled_database, put
from benchmarks.daemon import Daemon
from benchmarks.fill import clone, clone_id
from benchmarks.load import start_payload, start_runs
from benchmarks.questions.decisions import answers
from benchmarks.questions.sessions import STEPS_QUICK, Agent, one_run
from benchmarks.rows import Report, load
from benchmarks.workflows import ASKING, DECIDING, ONE, agent_steps, chain

pytestmark = pytest.mark.rest  # real processes, a second or more each

MODEL = "modelmodel12"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, for the kernel's limit on socket names."""
    with Bench().folder() as found:
        yield found


def test_clones_are_sound_runs_like_their_model(folder: Path) -> None:
    daemon = Daemon(folder)
    with daemon, daemon.client() as client:
        client.start(daemon.workflow(ASKING), run_id=MODEL)
        client.wait(MODEL, until="parked")
    clone(daemon.database, MODEL, 20)
    with daemon, daemon.client() as client:
        assert client.call("daemon.status").runs == {"waiting": 21}
        assert client.call("state.verify").violations == ()
        asked = client.call("request.list").requests
        assert {request.run_id for request in asked} == {MODEL, *(clone_id(i) for i in range(1, 21))}
        one = next(request for request in asked if request.run_id == clone_id(7))
        client.answer(one.request_id, True)
        assert client.wait(clone_id(7)).summary.status == "completed"


def test_clones_of_an_open_decision_can_be_decided(folder: Path) -> None:
    daemon = Daemon(folder)
    with daemon, daemon.client() as client:
        client.start(daemon.workflow(DECIDING), run_id=MODEL)
        client.wait(MODEL, until="parked")
    clone(daemon.database, MODEL, 20)
    with daemon, daemon.client() as client:
        assert client.call("state.verify").violations == ()
        asked = client.call("decision.list").decisions
        assert len(asked) == 21
        one = next(decision for decision in asked if decision.request.run_id == clone_id(7))
        client.decide(one, "go")
        assert client.wait(clone_id(7)).summary.status == "completed"


def test_clones_change_what_they_are_told_to(folder: Path) -> None:
    daemon = Daemon(folder)
    with daemon, daemon.client() as client:
        client.start(daemon.workflow(ONE), run_id=MODEL)
        client.wait(MODEL)
    clone(daemon.database, MODEL, 4, {"runs": {"title": "'number ' || c.i"}}, first=3)
    with daemon, daemon.client() as client:
        runs = client.call("run.list").runs
        assert [run.title for run in runs] == ["number 6", "number 5", "number 4", "number 3", None]


def test_clone_ids_are_scattered_and_never_meet() -> None:
    ids = [clone_id(i) for i in range(1, 20_001)]
    assert len(set(ids)) == len(ids)
    assert ids != sorted(ids)


def test_load_from_many_clients_is_answered_once_each(folder: Path) -> None:
    with Daemon(folder) as daemon:
        payload = start_payload(daemon, daemon.workflow(chain(3)), {"x": 1})
        latencies = start_runs(daemon, payload, 20, clients=4)
        later = start_payload(daemon, daemon.workflow(ONE), later=True)
        start_runs(daemon, later, 10, clients=2, wait=False)
        assert len(latencies) == 20
        assert daemon.status().runs == {"completed": 20, "queued": 10}


def test_the_agent_of_a_session_gets_each_step_and_the_end(folder: Path) -> None:
    with Daemon(folder) as daemon:
        agent = Agent(daemon, "worker")
        latencies = one_run(agent, start_payload(daemon, daemon.workflow(agent_steps(STEPS_QUICK))))
        agent.close()
        assert len(latencies) == STEPS_QUICK - 1
        assert daemon.status().runs == {"completed": 1}


def test_decisions_go_to_the_service_and_back() -> None:
    there, back = answers(Bench(), 2)
    assert (there.value.count, back.value.count) == (2, 2)
    assert back.value.low > 0


def test_a_refused_start_fails_the_measurement(folder: Path) -> None:
    with Daemon(folder) as daemon, pytest.raises(RuntimeError, match=r"not_found|invalid"):
        start_runs(daemon, start_payload(daemon, "/there/is/no/such.py"), 1, clients=1)


def test_a_filled_database_is_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWF_BENCH_CACHE", str(tmp_path / "cache"))
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_bytes(b"whole")

    def fail(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError("the disk is full")

    first, second = filled_database("some", make), filled_database("some", make)
    assert (first, len(made)) == (second, 1)
    with pytest.raises(OSError, match="full"):
        filled_database("other", fail)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [first.name]
    assert put(first, tmp_path / "home").read_bytes() == b"whole"


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Report, Path]:
    """The quickest questions, once each, from the command line."""
    where = tmp_path_factory.mktemp("quick")
    names = ["store_growth", "cli_start"]
    arguments = [*names, "--quick", "--times", "1", "--json", str(where / "r.json"), "--plot", str(where)]
    assert main(arguments) == 0
    return load(where / "r.json"), where


@pytest.mark.rest
def test_the_quickest_questions_are_answered(quick: tuple[Report, Path]) -> None:
    report, where = quick
    assert report.missing == []
    assert {row.question for row in report.rows} == {"store_growth", "cli_start"}
    assert all(row.value.median > 0 for row in report.rows)
    assert {"processor", "cores", "python", "sqlite", "took"} <= report.machine.keys()
    assert (where / "cli_start-ms.svg").exists()


@pytest.mark.rest
def test_a_report_compared_with_itself_has_not_moved(
    quick: tuple[Report, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    report, where = quick
    file = str(where / "r.json")
    assert main(["--compare", file, file]) == 0
    assert f"{len(report.rows)} of {len(report.rows)} rows are as before" in capsys.readouterr().out


def test_an_unknown_question_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["no_such_question"])
    assert (
        "there is no question no_such_question; there are limits, start_to_finish" in capsys.readouterr().err
    )
