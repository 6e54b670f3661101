"""A step finds what the first step of its runner found, whatever the one before did (X7)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pwf.workflow.effects import idempotent
from pwf.workflow.workflow import Workflow
from tests.runner.peer import MemoryRun, memory_run, run_forked


def after(spoil: Callable[[], object], look: Callable[[], Any], root: Path) -> tuple[Any, Any]:
    """What a step sees before and after another one has spoilt it, in the same runner."""
    flow: Workflow[Any] = Workflow("flow")

    @flow.compute
    def before(ctx: Any) -> Any:
        return look()

    @flow.action(effect=idempotent("x"))
    def act(ctx: Any) -> None:
        spoil()

    @flow.compute
    def then(ctx: Any) -> Any:
        return [ctx[before], look()]

    flow.graph(before >> act >> then)
    first, second = run_forked(flow, memory_run(flow, root=str(root))).output
    return first, second


def change_variables() -> None:
    os.environ["PWF_TEST_NEW"] = "1"
    os.environ["HOME"] = "/elsewhere"
    del os.environ["PATH"]


def replace_variables() -> None:
    os.environ = {"ONLY": "one"}  # type: ignore[assignment]  # noqa: B003


def see_variables() -> Any:
    return sorted((name, value) for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST")


def catch_signals() -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def see_signals() -> Any:
    handlers = [str(signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT)]
    return [*handlers, sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))]


def see_umask() -> int:
    found = os.umask(0)
    os.umask(found)
    return found


def remove_the_folder_it_stands_in() -> None:
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir("../gone")


@pytest.mark.parametrize(
    ("spoil", "look"),
    [
        (lambda: os.chdir("/"), os.getcwd),
        (remove_the_folder_it_stands_in, os.getcwd),
        (change_variables, see_variables),
        (replace_variables, see_variables),
        (lambda: os.umask(0o777), see_umask),
        (catch_signals, see_signals),
    ],
    ids=["folder", "removed folder", "variables", "all variables", "umask", "signals"],
)
def test_what_one_step_changes_is_as_it_was_for_the_next(
    spoil: Callable[[], object], look: Callable[[], Any], tmp_path: Path
) -> None:
    before, then = after(spoil, look, tmp_path)
    assert then == before


def test_a_title_that_is_made_changes_nothing_for_the_first_step(tmp_path: Path) -> None:
    flow: Workflow[Any] = Workflow("flow", title=lambda ctx: str(os.chdir("/")))

    @flow.compute
    def where(ctx: Any) -> str:
        return os.getcwd()

    assert run_forked(flow, memory_run(flow, root=str(tmp_path))).output == str(tmp_path)


def test_a_time_zone_that_one_step_set_is_not_the_next_ones() -> None:
    import time

    def zone() -> None:
        os.environ["TZ"] = "Asia/Tokyo"
        time.tzset()

    before, then = after(zone, lambda: time.localtime(0).tm_hour, Path("/"))
    assert then == before


def leaks(flow: Workflow[Any], capfd: pytest.CaptureFixture[str]) -> tuple[MemoryRun, list[str]]:
    run = run_forked(flow, memory_run(flow))
    return run, [line for line in capfd.readouterr().err.splitlines() if "left descriptors open" in line]


def test_descriptors_that_a_step_left_open_are_named_once_and_stay_open(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    flow: Workflow[Any] = Workflow("flow")
    path = tmp_path / "left"
    path.write_text("x")

    @flow.compute
    def opens(ctx: Any) -> int:
        return os.open(path, os.O_RDONLY)

    @flow.compute
    def reads(ctx: Any) -> str:
        return os.read(ctx[opens], 10).decode()

    flow.graph(opens >> reads)
    run, said = leaks(flow, capfd)
    assert run.output == "x"
    (line,) = said
    assert "'opens'" in line
    assert str(path) in line


def test_a_step_that_closes_what_it_opened_is_not_named(capfd: pytest.CaptureFixture[str]) -> None:
    flow: Workflow[Any] = Workflow("flow")

    @flow.compute
    def tidy(ctx: Any) -> int:
        with open("/etc/hostname", "rb") as file:
            return len(file.read())

    @flow.compute
    async def loops(ctx: Any) -> int:
        import trio

        await trio.lowlevel.checkpoint()
        return 1

    flow.graph(tidy >> loops)
    assert leaks(flow, capfd)[1] == []
