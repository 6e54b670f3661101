"""The workflows that come with pwf and have agents: `summary`, `plan` and `implement`. The agents are scripted."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pwf import testing
from pwf.builtin_workflows import implement, plan, summary
from pwf.errors import InvalidAnswer

SUMMARY = {"headline": "Two changes", "points": ["It is faster.", "It has colours."]}
FRAME = {"goal": "Be done", "facts": ["f"], "bounds": [], "done_when": ["it is"]}
WAYS = {"candidates": [{"name": name, "idea": f"do {name}", "risks": ["r"]} for name in ("a", "b", "c")]}
WRITTEN = {"title": "The plan", "steps": [{"does": "it", "verified_by": "looking"}]}
PLANNING = {"frame": FRAME, "find": WAYS, "choose": {"name": "b", "why": "w"}, "write": WRITTEN}
CHECKING = {"task": "Make ok", "verify": ["test", "-e", "ok"], "plan": False}
REAL = ["base", "before", "verify", "changes", "commit"]
GOOD = {"verdict": "good"}


def chosen(choice: str, text: str | None = None) -> dict[str, str | None]:
    return {"choice": choice, "text": text}


def test_a_summary_is_told_and_its_text_comes_from_the_input_or_a_command() -> None:
    given = testing.run(summary.flow, {"text": "log of changes"}, answers={"summarize": SUMMARY})
    read = testing.run(
        summary.flow, {"command": ["x"]}, effects={"read": "log of changes"}, answers={"summarize": SUMMARY}
    )
    for done in (given, read):
        assert done.output == summary.Told(**SUMMARY, cut=False)  # type: ignore[arg-type]
        assert done["tell"] == "Two changes\n- It is faster.\n- It has colours."
        assert done.asked[0].prompt.endswith("log of changes")


def test_a_summary_that_is_too_long_is_given_back_and_a_long_text_is_cut_and_said_so() -> None:
    with pytest.raises(InvalidAnswer, match="it has 12 words, and may have 10"):
        testing.run(
            summary.flow,
            {"text": "t", "words": 10},
            answers={"summarize": {**SUMMARY, "points": ["w " * 10]}},
        )
    done = testing.run(summary.flow, {"text": "x" * (summary.READ_CHARS + 1)}, answers={"summarize": SUMMARY})
    assert done.output.cut
    assert "its beginning" in done.asked[0].prompt


@pytest.mark.parametrize("wrong", [{}, {"text": "t", "command": ["c"]}, {"text": "  "}])
def test_a_summary_of_nothing_fails(wrong: dict[str, Any]) -> None:
    assert testing.run(summary.flow, wrong).status == "failed"


@pytest.mark.parametrize(
    ("answer", "way"), [(None, "b"), (chosen("take"), "b"), (chosen("other", "do d"), "do d")]
)
def test_a_plan_goes_the_way_that_the_agent_or_a_person_has_chosen(answer: Any, way: str) -> None:
    done = testing.run(
        plan.flow, {"task": "T", "ask": answer is not None}, answers={**PLANNING, "confirm": answer}
    )
    assert (done.output.way, done.output.title, done.output.goal) == (way, "The plan", "Be done")
    assert done.asked[-1].prompt.endswith(f"The way that was chosen: {way}")


def test_a_plan_that_nobody_wants_is_not_written() -> None:
    done = testing.run(
        plan.flow, {"task": "T", "ask": True}, answers={**PLANNING, "confirm": chosen("stop", "no")}
    )
    assert (done.output, "write" in done.path) == (plan.Stopped(text="no"), False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"find": {"candidates": WAYS["candidates"][:2]}}, "3 or more"),
        ({"find": {"candidates": WAYS["candidates"][:1] * 3}}, "the same name"),
        ({"choose": {"name": "z", "why": "w"}}, "no candidate 'z'"),
    ],
)
def test_a_plans_agent_is_told_what_is_wrong(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidAnswer, match=said):
        testing.run(plan.flow, {"task": "T"}, answers={**PLANNING, **wrong})


def git(root: Path, *words: str) -> str:
    who = ["-c", "user.name=N", "-c", "user.email=n@example.org"]
    return subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "N")
    git(tmp_path, "config", "user.email", "n@example.org")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message=base")
    return tmp_path


def writes(root: Path, name: str) -> Callable[[Any], dict[str, str]]:
    """An agent that writes a file."""

    def work(prompt: Any) -> dict[str, str]:
        (root / name).write_text("text\n")
        return {"summary": f"wrote {name}"}

    return work


def implemented(root: Path, answers: dict[str, Any], **more: Any) -> testing.Tested:
    done = testing.run(implement.flow, {**CHECKING, **more}, real=REAL, answers=answers, root=root)
    assert done.status in ("completed", "waiting"), done.error
    return done


def test_what_check_and_review_accept_is_taken_and_committed(repository: Path) -> None:
    base = git(repository, "rev-parse", "HEAD").strip()
    work = writes(repository, "ok")
    done = implemented(repository, {"work": work, "review": GOOD}, decide="auto", commit="Make it")
    left = done.output
    assert (left.exit, left.base, left.rounds, left.was, left.verified) == ("accepted", base, 1, False, True)
    assert left.commit == git(repository, "rev-parse", "HEAD").strip() != base
    assert git(repository, "log", "-1", "--format=%s", "--name-only").split() == ["Make", "it", "ok"]
    assert "+text" in next(asked.prompt for asked in done.asked if asked.node == "review")


def test_what_is_refused_is_worked_on_again_with_what_was_said(repository: Path) -> None:
    def agent(prompt: str) -> dict[str, str]:
        names = ["other", "ok", "more"]
        return writes(repository, names[len(list(repository.glob("[!.]*")))])(prompt)

    review = testing.each({"verdict": "change", "findings": ["needs more"]}, GOOD)
    done = implemented(repository, {"work": agent, "review": review}, decide="auto")
    assert (done.output.exit, done.output.rounds, done.output.findings) == ("accepted", 3, [])
    first, second, third = (asked.prompt for asked in done.asked if asked.node == "work")
    assert "fails already on the base" in first
    assert "The check has failed since:" in second
    assert "needs more" in third
    assert done.output.commit is None
    assert git(repository, "status", "--porcelain").count("??") == 3


def test_after_the_last_round_it_is_unsettled_or_a_person_decides(repository: Path) -> None:
    work = {"work": {"summary": "did nothing"}}
    done = implemented(repository, work, decide="auto", rounds=2)
    assert (done.output.exit, done.output.rounds, done.output.verified) == ("unsettled", 2, False)
    done = implemented(repository, {**work, "decide": chosen("drop", "too late")}, rounds=1)
    assert (done.output.exit, done.output.text) == ("dropped", "too late")
    again = testing.each(chosen("again", "try harder"), chosen("take"))
    done = implemented(repository, {**work, "decide": again}, rounds=1)
    assert (done.output.exit, done.output.rounds, done.output.verified) == ("accepted", 2, False)
    assert done.asked[-2].prompt.endswith("A person says:\ntry harder")


def test_work_that_changes_nothing_is_never_reviewed(repository: Path) -> None:
    done = implemented(repository, {"work": {"summary": "nothing"}}, verify=["true"], decide="auto", rounds=2)
    assert (done.output.exit, "review" in done.path) == ("unsettled", False)
    assert done.asked[-1].prompt.endswith("Nothing is other than on the base.")


def test_it_begins_with_a_plan_and_never_on_a_work_tree_with_something_in_it(repository: Path) -> None:
    planning = {f"plan.{node}": answer for node, answer in PLANNING.items()}
    answers = {**planning, "work": writes(repository, "ok"), "review": GOOD, "decide": chosen("take")}
    done = implemented(repository, answers, plan=True)
    assert done.output.exit == "accepted"
    assert '"title": "The plan"' in next(asked.prompt for asked in done.asked if asked.node == "work")
    done = testing.run(implement.flow, CHECKING, real=REAL, root=repository)
    assert done.status == "failed"
    assert done.error is not None
    assert done.path == ["base"]
