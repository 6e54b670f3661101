"""Processes that a step starts by `multiprocessing` work, with the code that its run started with (X2)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from pwf.protocol.spawn import SourceBundle
from pwf.runner.load.children import load_with_children
from tests.runner.forked import forked
from tests.runner.project import Project

HEAD = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

from helpers import double


def square(number):
    return number * number
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(Path(os.path.realpath(tmp_path)) / "project")


def run_pinned(bundle: SourceBundle) -> Any:
    """What the step returns in a process that has loaded the bundle as a runner does."""
    return forked(lambda: load_with_children(bundle).nodes["step"].fn(None))


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.parametrize("function", ["square", "double"], ids=["of the workflow's file", "of a helper"])
def test_a_pool_of_every_kind_works_with_the_recorded_code(
    project: Project, method: str, function: str
) -> None:
    project.write("helpers.py", "def double(number):\n    return number * 2")
    project.workflow(
        HEAD,
        body=f"""
        with multiprocessing.get_context("{method}").Pool(2) as pool:
            return pool.map({function}, [1, 2, 3])
        """,
    )
    bundle = project.bundle()
    shutil.rmtree(project.root)
    project.root.mkdir()
    expected = [1, 4, 9] if function == "square" else [2, 4, 6]
    assert run_pinned(bundle) == expected


def test_an_executor_of_processes_works_though_the_files_were_edited(project: Project) -> None:
    helper = project.write("helpers.py", "def double(number):\n    return number * 2")
    flow = project.workflow(
        HEAD,
        body="""
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            return [pool.submit(square, 5).result(20), pool.submit(double, 5).result(20)]
        """,
    )
    bundle = project.bundle()
    helper.write_text("def double(number):\n    return 'edited'")
    flow.write_text("raise RuntimeError('edited')")
    assert run_pinned(bundle) == [25, 10]


def test_a_child_of_a_child_has_the_code_too(project: Project) -> None:
    project.workflow(
        """
        import multiprocessing

        def leaf(number, answer):
            answer.put(number + 1)

        def middle(number, answer):
            child = multiprocessing.get_context("spawn").Process(target=leaf, args=(number, answer))
            child.start()
            child.join()
        """,
        body="""
        context = multiprocessing.get_context("spawn")
        answer = context.Queue()
        child = context.Process(target=middle, args=(1, answer))
        child.start()
        found = answer.get(timeout=20)
        child.join()
        return found
        """,
    )
    assert run_pinned(project.bundle()) == 2
