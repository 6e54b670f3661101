"""Plugins that a step looks for are those that its run was recorded with, found as plain Python finds them (X10)."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.runner.forked import forked
from tests.runner.project import Project, bundle_of, modules, run_pinned, sound

LOAD_ALL = "[importlib.import_module(name).NAME for name in names]"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(Path(os.path.realpath(tmp_path)) / "project")
    project.write("plugins/__init__.py", "")
    project.write("plugins/a.py", "NAME = 'a'")
    project.write("plugins/b.py", "from other import late\nNAME = 'b' + late.END")
    project.write("plugins/deep/__init__.py", "NAME = 'deep'")
    project.write("plugins/deep/c.py", "NAME = 'c'")
    project.write("plugins/words.txt", "hello")
    project.write("other/__init__.py", "")
    project.write("other/late.py", "END = '!'")
    project.write("other/unmeant.py", "raise RuntimeError")
    return project


def change(project: Project) -> None:
    """What happens to the files after the run has started."""
    shutil.rmtree(project.root / "other")
    (project.root / "plugins/a.py").write_text("NAME = 'edited'")
    (project.root / "plugins/b.py").unlink()
    (project.root / "plugins/new.py").write_text("NAME = 'new'")


@pytest.mark.parametrize(
    ("names", "found"),
    [
        ("[f'plugins.{one.name}' for one in pkgutil.iter_modules(plugins.__path__)]", ["a", "b!", "deep"]),
        (
            "[one.name for one in pkgutil.walk_packages(plugins.__path__, 'plugins.')]",
            ["a", "b!", "deep", "c"],
        ),
        ("['plugins.' + word for word in ('a', 'deep.c')]", ["a", "c"]),
        (
            "sorted('plugins.' + one.name[:-3] for one in importlib.resources.files(plugins).iterdir()"
            " if one.name.endswith('.py') and one.name[0] != '_')",
            ["a", "b!"],
        ),
    ],
    ids=["iter_modules", "walk_packages", "computed names", "resources"],
)
@pytest.mark.parametrize("place", ["in the step", "at load"])
def test_every_way_to_look_for_plugins_finds_the_recorded_ones(
    project: Project, names: str, found: list[str], place: str
) -> None:
    head = "import importlib, importlib.resources, pkgutil\nimport plugins\n"
    look = f"names = {names}\nfound = {LOAD_ALL}"
    if place == "at load":
        project.workflow(head + look, "return found")
    else:
        project.workflow(head, look + "\nreturn found")
    bundle = project.bundle()
    change(project)
    assert run_pinned(bundle) == found


def test_a_name_that_begins_with_its_package_needs_no_import_of_that(project: Project) -> None:
    project.workflow("import importlib", "name = 'a'\nreturn importlib.import_module(f'plugins.{name}').NAME")
    assert run_pinned(project.bundle()) == "a"


def test_packages_that_no_such_text_names_are_not_recorded_whole(project: Project) -> None:
    project.workflow("import pkgutil\nimport plugins", "return list(pkgutil.iter_modules(plugins.__path__))")
    project.write("plugins/b.py", "import other.late\nNAME = 'b'")
    found = modules(project.definition())
    assert {"plugins.a", "plugins.deep.c", "other.late"} <= found
    assert "other.unmeant" not in found


def test_a_plugin_that_is_added_makes_the_next_run_another_one(project: Project) -> None:
    project.workflow("import pkgutil\nimport plugins", "return list(pkgutil.iter_modules(plugins.__path__))")
    answer = project.resolve()
    assert str(project.root / "plugins") in answer.watch


@pytest.mark.parametrize("where", ["the project", "an installed package"])
def test_entry_points_find_the_projects_modules(project: Project, tmp_path: Path, where: str) -> None:
    place = project.root if where == "the project" else tmp_path / "site"
    info = place / "mine-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[mine.plugins]\none = plugins.a:NAME\n")
    project.workflow(
        "import importlib.metadata",
        "return [one.load() for one in importlib.metadata.entry_points(group='mine.plugins')]",
    )

    def resolved_and_run() -> object:
        sys.path.append(str(tmp_path / "site"))
        bundle = bundle_of(project.resolve())
        change(project)
        return run_pinned(bundle)

    assert forked(resolved_and_run) == ["a"]


def test_resources_are_recorded_modules_and_other_files_as_they_are(project: Project) -> None:
    project.workflow(
        "import importlib.resources\nimport plugins",
        """
        folder = importlib.resources.files(plugins)
        here = sorted(one.name for one in folder.iterdir())
        return here, (folder / "a.py").read_text(), (folder / "words.txt").read_text(), (folder / "a.py").is_file()
        """,
    )
    bundle = project.bundle()
    change(project)
    (project.root / "plugins/words.txt").write_text("edited")
    assert run_pinned(bundle) == (["__init__.py", "deep", "words.txt"], "NAME = 'edited'", "edited", True)


def test_resources_of_a_package_without_init_are_found(project: Project) -> None:
    project.write("space/one.py", "")
    project.write("space/words.txt", "hi")
    project.workflow(
        "import importlib.resources\nimport space.one",
        "return importlib.resources.files('space').joinpath('words.txt').read_text()",
    )
    assert run_pinned(project.bundle()) == "hi"


def test_more_modules_than_can_be_meant_are_reported_and_not_all_recorded(project: Project) -> None:
    for number in range(510):
        project.write(f"plugins/p{number:03}.py", "")
    project.workflow("import pkgutil\nimport plugins", "return list(pkgutil.iter_modules(plugins.__path__))")
    definition = sound(project.resolve())
    assert any("import at the top what it needs" in warning for warning in definition.warnings)
    assert 500 <= len(modules(definition)) <= 502
