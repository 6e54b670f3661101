"""Loaded code is never kept after a file that it was loaded from has changed (X5)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import trio

from pwf.watch import still_valid
from tests.actors.pool_world import Project, running_pool, the_template, waiting_runner
from tests.actors.test_runner_pool_reserved import reserve

pytestmark = pytest.mark.trio

HEAD = "import sys\nsys.path.append({folder!r})\nimport outside\n"


def write(folder: Path, value: str, *, age_s: float = 10.0) -> None:
    """The text of the package, with times old enough to be trusted. It has the same size each time."""
    path = folder / "outside" / "__init__.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"VALUE = {value!r}\n")
    then = time.time() - age_s
    os.utime(path, (then, then))


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Where a package stands that is installed in place: outside the project."""
    folder = tmp_path / "elsewhere"
    write(folder, "one")
    return folder


async def project_of(pool: object, tmp_path: Path, installed: Path) -> Project:
    project = Project(tmp_path / "project", pool)  # type: ignore[arg-type]
    project.root.mkdir()
    await project.write("return outside.VALUE", HEAD.format(folder=str(installed)))
    await trio.sleep(0.05)  # a file of this instant is not trusted
    return project


async def test_an_edited_package_outside_the_root_is_executed_by_the_next_run(
    tmp_path: Path, installed: Path
) -> None:
    async with running_pool() as pool:
        project = await project_of(pool, tmp_path, installed)
        assert await project.output() == "one"
        first = the_template(pool)
        assert await project.output() == "one"
        assert the_template(pool) is first
        write(installed, "two", age_s=9.0)
        assert await project.output() == "two"
        assert the_template(pool) is not first
        assert not first.is_open


async def test_a_runner_that_stands_by_with_stale_code_gets_no_run(tmp_path: Path, installed: Path) -> None:
    async with running_pool() as pool:
        project = await project_of(pool, tmp_path, installed)
        await project.output()
        await waiting_runner(pool)
        reserved = reserve(project)
        assert reserved is not None
        reserved.put_back()
        write(installed, "two", age_s=9.0)
        assert reserve(project) is None


async def test_what_is_edited_while_it_is_loaded_is_loaded_again(tmp_path: Path, installed: Path) -> None:
    async with running_pool() as pool:
        project = Project(tmp_path / "project", pool)
        project.root.mkdir()
        edit = f"open({str(installed / 'outside/__init__.py')!r}, 'w').write({'VALUE = 2'!r})"
        head = HEAD.format(folder=str(installed)) + f"if outside.VALUE == 'one':\n    {edit}\n"
        await project.write("return outside.VALUE", head)
        write(installed, "one")
        assert await project.output() == 2


async def test_an_answer_of_the_resolver_depends_on_a_package_that_is_installed_in_place(
    tmp_path: Path, installed: Path
) -> None:
    async with running_pool() as pool:
        project = await project_of(pool, tmp_path, installed)
        answer = await project.write("return 1", HEAD.format(folder=str(installed)))
        path = str(installed / "outside" / "__init__.py")
        watch = {path: answer.watch[path]}
        assert still_valid(watch)
        write(installed, "two", age_s=9.0)
        assert not still_valid(watch)
