"""Two versions in turn: pairing, ratios, intervals, verdicts, and by whose benchmarks they are measured."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from benchmarks.__main__ import main
from benchmarks.beside.driving import NAMES, Beside, Session, markdown
from benchmarks.beside.pairs import Interval, Verdict, before_first, compared, interval_of, verdict_of
from benchmarks.beside.sides import Failed, Side, at_commit, measure, shared_harness
from benchmarks.questions import NAMES as QUESTIONS
from benchmarks.rows import Report
from tests.benchmarks.samples import report, row

SHARED = Path("shared")
BEFORE = Side("before", Path("before-tree"), Path("python"), Path("cache"))
AFTER = Side("after", Path("after-tree"), Path("python"), Path("cache"))


def pairs_of(*values: tuple[float, float], better: str = "more") -> list[tuple[Report, Report]]:
    return [
        (report(row(value=old, better=better)), report(row(value=new, better=better))) for old, new in values
    ]


class Measured:
    """Stands in for the measuring of a side: remembers the order, and gives what it is told to."""

    def __init__(self, value: Callable[[Side], float] = lambda _: 100.0) -> None:
        self.order: list[tuple[str, str]] = []
        self.harness: dict[tuple[str, str], Path] = {}
        self.fails: Callable[[Side, Path], str | None] = lambda _side, _harness: None
        self.raises: dict[int, BaseException] = {}
        self._value = value

    def __call__(self, side: Side, name: str, harness: Path) -> Report:
        self.order.append((side.name, name))
        if error := self.raises.get(len(self.order)):
            raise error
        if why := self.fails(side, harness):
            raise Failed(why)
        self.harness[side.name, name] = harness
        return report(row(question=name, value=self._value(side)))

    def run(self, pairs: int = 8, names: tuple[str, ...] = ("a",)) -> Beside:
        session = Session(BEFORE, AFTER, shared=SHARED, measure=self, say=self.said.append)
        return session.run(names, pairs)

    @property
    def said(self) -> list[str]:
        return self.__dict__.setdefault("lines", [])


# --- ratios, intervals, verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(("better", "ratio"), [("more", 2.0), ("less", 0.5)])
def test_a_ratio_above_one_is_better_whatever_the_unit(better: str, ratio: float) -> None:
    (found,) = compared(pairs_of((100, 200), better=better))
    assert found.ratio == ratio


def test_the_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_the_medians() -> None:
    (found,) = compared(pairs_of((10, 11), (1_000, 1_100), (100, 50)))  # the machine was of three speeds
    assert found.ratio == pytest.approx(1.1)
    assert (found.before, found.after) == ([10, 1_000, 100], [11, 1_100, 50])


def test_a_row_of_one_version_only_and_one_of_the_machine_are_not_compared() -> None:
    before = report(row("a"), row("gone"), row("disk", engine="machine"))
    after = report(row("a"), row("new"), row("disk", engine="machine"))
    assert [found.what for found in compared([(before, after)])] == ["a"]


def test_the_versions_change_places_from_pair_to_pair() -> None:
    assert [before_first(pair) for pair in range(4)] == [True, False, True, False]


@pytest.mark.parametrize(
    ("count", "rank", "sure"),
    [
        (1, 0, 0.0),
        (7, 0, 1 - 2 / 2**7),
        (8, 0, 1 - 2 / 2**8),
        (12, 1, 1 - 2 * 13 / 2**12),
        (16, 2, 1 - 2 * (1 + 16 + 120) / 2**16),
    ],
)
def test_the_interval_is_the_narrowest_that_the_sign_test_is_sure_of(
    count: int, rank: int, sure: float
) -> None:
    values = [float(value) for value in range(1, count + 1)]
    assert interval_of(values[::-1]) == (1 + rank, count - rank, pytest.approx(sure))


@pytest.mark.parametrize(
    ("ratio", "low", "high", "sure", "verdict"),
    [
        (1.0, 0.5, 2.0, 0.99, "within 5 %"),
        (0.951, 0.94, 0.96, 0.99, "within 5 %"),
        (1.2, 1.1, 1.3, 0.99, "better"),
        (0.9, 0.85, 0.99, 0.99, "moved"),
        (0.9, 0.8, 1.01, 0.99, "unclear"),
        (1.1, 0.99, 1.2, 0.99, "unclear"),
        (0.5, 0.4, 0.6, 0.98, "too few pairs"),
    ],
)
def test_a_verdict_takes_enough_pairs_five_percent_and_an_interval_on_one_side(
    ratio: float, low: float, high: float, sure: float, verdict: Verdict
) -> None:
    assert verdict_of(ratio, Interval(low, high, sure)) == verdict


# --- a session --------------------------------------------------------------------------------------------------


def test_both_versions_are_measured_in_turn_after_a_pair_that_does_not_count() -> None:
    measured = Measured()
    found = measured.run(pairs=2)
    assert [name for name, _ in measured.order] == ["before", "after", "before", "after", "after", "before"]
    assert [len(one.before) for one in found.rows] == [2]


def test_a_slower_version_is_told_from_a_slower_machine() -> None:
    measured = Measured(lambda side: 70.0 if side is AFTER else 100.0)
    (found,) = measured.run(pairs=8).rows
    assert (found.ratio, found.verdict) == (0.7, "moved")


def test_the_working_tree_s_benchmarks_measure_both_versions_where_they_fit() -> None:
    measured = Measured()
    assert measured.run().own == []
    assert set(measured.harness.values()) == {SHARED}


def test_each_version_s_own_benchmarks_measure_where_the_working_tree_s_do_not_fit() -> None:
    measured = Measured()
    measured.fails = lambda side, harness: (
        "ImportError: it has moved" if side is BEFORE and harness is SHARED else None
    )
    found = measured.run()
    assert found.own == ["a"]
    assert measured.harness["before", "a"] == BEFORE.tree
    assert measured.harness["after", "a"] == AFTER.tree
    assert "Measured by each version's own benchmarks: a." in markdown(found)


def test_a_question_that_neither_can_answer_is_told_and_the_others_are_measured() -> None:
    measured = Measured()
    measured.fails = lambda side, _: "no such question" if measured.order[-1][1] == "a" else None
    found = measured.run(names=("a", "b"))
    assert [(missing.name, missing.why) for missing in found.missing] == [("a", "before: no such question")]
    assert [one.question for one in found.rows] == ["b"]


def test_a_measurement_that_fails_takes_its_pair_along_and_no_other() -> None:
    measured = Measured()
    measured.raises[4] = Failed("the daemon does not answer")
    found = measured.run(pairs=3)
    assert [len(one.before) for one in found.rows] == [2]
    assert found.notes[-1] == "pair 1 of a does not count: after: the daemon does not answer"


def test_what_was_measured_before_an_interruption_is_reported() -> None:
    measured = Measured()
    measured.raises[9] = KeyboardInterrupt()
    found = measured.run(pairs=8)
    assert [len(one.before) for one in found.rows] == [3]
    assert found.notes[-1] == "interrupted: fewer than 8 pairs were measured"


def test_the_time_left_is_told_from_the_second_pair_on() -> None:
    times = iter([0.0, 30.0, 60.0])
    said: list[str] = []
    session = Session(
        BEFORE, AFTER, shared=SHARED, measure=Measured(), say=said.append, clock=lambda: next(times)
    )
    session.run(["a"], 3)
    assert [line for line in said if line.startswith("pair")] == [
        "pair 1 of 3",
        "pair 2 of 3, 60 s left",
        "pair 3 of 3, 30 s left",
    ]


def test_the_report_survives_json() -> None:
    found = Measured().run()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Beside) == found


def test_the_rows_that_are_asked_for_by_default_are_questions() -> None:
    assert set(NAMES) <= set(QUESTIONS)


# --- the two versions -------------------------------------------------------------------------------------------


def test_the_shared_benchmarks_come_without_the_pwf_beside_them() -> None:
    with shared_harness() as folder:
        assert [path.name for path in folder.iterdir()] == ["benchmarks"]
        assert (folder / "benchmarks" / "questions" / "limits.py").exists()
    assert not folder.exists()


def test_a_commit_that_is_not_there_is_refused_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--beside", "no-such-commit"])
    assert "error: no commit no-such-commit" in capsys.readouterr().err


def test_the_text_of_a_commit_is_its_own_whatever_stands_in_the_working_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWF_BENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("benchmarks.beside.sides.python_with_tree", lambda _name, tree: tree / "python")
    repository = tmp_path / "repository"
    git = ["git", "-C", str(repository), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", "init", "--quiet", str(repository)], check=True)
    (repository / "text").write_text("committed")
    subprocess.run([*git, "add", "text"], check=True)
    subprocess.run([*git, "commit", "--quiet", "--message", "first"], check=True)
    (repository / "text").write_text("changed")

    first, again = at_commit("HEAD", repository), at_commit("HEAD", repository)
    assert (first.tree / "text").read_text() == "committed"
    assert first == again
    assert sorted(path.name for path in first.tree.parent.iterdir()) == ["tree"]
    assert first.cache != AFTER.cache


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the environments of both versions are made once."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.rest
@pytest.mark.timeout(600)
def test_the_working_tree_is_measured_beside_its_own_commit(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PWF_BENCH_CACHE", str(cache))
    file = tmp_path / "beside.json"
    assert main(["--beside", "HEAD", "--pairs", "1", "store_growth", "--json", str(file)]) == 0
    found = msgspec.json.decode(file.read_bytes(), type=Beside)
    assert (found.missing, found.own) == ([], [])
    assert {one.what for one in found.rows} == {"a run of one step", "a further step"}
    assert "| store_growth | a further step |" in capsys.readouterr().out


@pytest.mark.rest
@pytest.mark.timeout(600)
def test_a_commit_can_be_measured_by_its_own_benchmarks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWF_BENCH_CACHE", str(cache))
    side = at_commit("HEAD")
    found = measure(side, "store_growth", side.tree, ["--quick", "--times", "1"])
    assert {one.what for one in found.rows} == {"a run of one step", "a further step"}


@pytest.mark.rest
@pytest.mark.timeout(600)
def test_the_pwf_that_is_measured_is_that_of_the_commit(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWF_BENCH_CACHE", str(cache))
    side = at_commit("HEAD")
    where = [str(side.python), "-P", "-c", "import pwf; print(pwf.__file__)"]
    done = subprocess.run(where, capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.strip() == str(side.tree / "pwf" / "__init__.py")
