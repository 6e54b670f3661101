"""Files of resource managers are resolved, recorded and loaded as those of workflows are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pwf.workflow.resource_manager import ResourceManager
from tests.runner.project import Project, modules, sound, with_pinned

TEXT = """
    import msgspec
    from pwf import ResourceManager
    {head}

    class Spec(msgspec.Struct):
        size: int = 1

    manager = ResourceManager("disk", spec=Spec)

    @manager.reconcile
    def reconcile(ctx, resource):
        return ctx.settled()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(Path(os.path.realpath(tmp_path)) / "project", ".pwf/resources/disk.py")


def write(project: Project, head: str = "", name: str = "disk.py") -> None:
    project.write(f".pwf/resources/{name}", TEXT.format(head=head))


def test_a_managers_file_is_recorded_with_all_that_it_imports(project: Project) -> None:
    project.write(".pwf/resources/beside.py", "x = 1\n")
    write(project, "import beside")

    definition = sound(project.resolve())

    assert definition.graph.manager is not None
    assert (definition.graph.name, modules(definition)) == ("disk", {"beside"})


def test_a_manager_is_loaded_from_the_recorded_bytes(project: Project) -> None:
    write(project)
    bundle = project.bundle()
    project.flow.unlink()

    def use(found: ResourceManager[object, object]) -> str:
        assert found.fn is not None
        return f"{found.name} in {found.fn.__code__.co_filename}"

    assert with_pinned(bundle, use) == f"disk in {project.flow}"


def test_a_file_that_bears_another_name_is_refused(project: Project) -> None:
    project = Project(project.root, ".pwf/resources/drive.py")
    write(project, name="drive.py")

    answer = project.resolve()

    assert answer.definition is None
    assert answer.error_code == "graph_error"
    assert answer.error == f"{project.flow}: the manager calls itself 'disk', and its file 'drive'"
    assert "rename the file to disk.py" in (answer.hint or "")


def test_a_mistake_in_it_names_file_and_line(project: Project) -> None:
    project.write(".pwf/resources/disk.py", "from pwf import ResourceManager\nResourceManager('disk')\n")

    answer = project.resolve()

    assert answer.error is not None
    assert answer.error.startswith(f"{project.flow}:2: ")
    assert "spec" in answer.error
