"""What the resolver records: which modules, from where, and what it says about names."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pwf.runner.load.resolve import resolve
from pwf.runner.load.tree import library_folders
from pwf.values import digest
from tests.runner.forked import forked
from tests.runner.project import Project, bundle_of, modules, on_path, run_pinned, sound, sources


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(Path(os.path.realpath(tmp_path)) / "project")


def test_the_root_file_and_what_it_imports_are_recorded_by_path_digest_and_size(project: Project) -> None:
    project.write(".pwf/workflows/helper.py", "VALUE = 1\n")
    flow = project.workflow("import helper")

    found = sources(project.definition())

    assert found["flow.py"].kind == "root"
    assert found["flow.py"].module == ""
    assert found["flow.py"].path == str(flow)
    assert found["helper.py"].module == "helper"
    assert found["helper.py"].digest == digest(b"VALUE = 1\n")
    assert found["helper.py"].size == 10


def test_imports_inside_functions_are_followed_transitively_without_running_them(project: Project) -> None:
    project.write("one.py", "raise SystemExit('not while resolving')\ndef f():\n    import two\n")
    project.write("two.py", "import three.deep\n")
    project.write("three/__init__.py", "")
    project.write("three/deep.py", "from . import side\n")
    project.write("three/side.py", "")
    project.workflow(body="return __import__('one').VALUE")

    assert modules(project.definition()) == {"one", "two", "three", "three.deep", "three.side"}


@pytest.mark.parametrize(
    "text",
    [
        "import importlib\nimportlib.import_module('pack.inner')",
        "from importlib import import_module\nimport_module('.inner', 'pack')",
        "from importlib import import_module as m\nimport importlib\nimportlib.import_module('.inner', package='pack')",
        "__import__('pack.inner')",
        "from pack import inner",
        "from pack.inner import VALUE",
        "try:\n    import pack.inner as x\nexcept ImportError:\n    x = None",
        "if False:\n    import pack.inner",
    ],
)
def test_every_way_to_name_a_module_is_seen(project: Project, text: str) -> None:
    project.write("pack/__init__.py", "")
    project.write("pack/inner.py", "VALUE = 1")
    project.workflow(body=text + "\nreturn 1")

    assert modules(project.definition()) == {"pack", "pack.inner"}


def test_packages_namespace_packages_and_relative_imports(project: Project) -> None:
    project.write("space/deep/pack/__init__.py", "from .left import L\nfrom ..sibling import S")
    project.write("space/deep/pack/left.py", "L = 1")
    project.write("space/deep/sibling.py", "S = 2")
    project.workflow("from space.deep.pack import L")

    assert modules(project.definition()) == {"space.deep.pack", "space.deep.pack.left", "space.deep.sibling"}


def test_a_dynamic_import_at_load_is_recorded_and_a_computed_name_in_a_function_is_reported(
    project: Project,
) -> None:
    project.write("plugins/__init__.py", "")
    project.write("plugins/a.py", "N = 1")
    project.write("plugins/b.py", "N = 2")
    project.workflow(
        """
        import importlib, pkgutil, plugins
        for found in pkgutil.iter_modules(plugins.__path__):
            importlib.import_module("plugins." + found.name)
        """
    )

    definition = project.definition()

    assert modules(definition) == {"plugins", "plugins.a", "plugins.b"}
    assert any("flow.py:4: imports a module by a computed name" in one for one in definition.warnings)


def test_virtual_environments_site_packages_and_hidden_folders_are_not_the_projects(project: Project) -> None:
    project.write("env/pyvenv.cfg", "")
    for folder in ("env/lib", "vendor/site-packages", ".hidden"):
        project.write(f"{folder}/outside_{folder[1:3].strip('/')}.py", "")
    project.workflow(
        """
        import os, sys
        root = os.getcwd()
        for folder in ("env/lib", "vendor/site-packages", ".hidden"):
            sys.path.append(os.path.join(root, folder))
        import outside_nv, outside_en, outside_hi
        """
    )

    assert modules(project.definition()) == set()


def test_a_helper_beside_the_file_stands_before_one_in_the_root_and_that_is_reported(
    project: Project,
) -> None:
    project.write(".pwf/workflows/helper.py", "FROM = 'beside'")
    project.write("helper.py", "FROM = 'root'")
    project.workflow("import helper\nassert helper.FROM == 'beside'")

    definition = project.definition()

    assert sources(definition)["helper.py"].path == str(project.root / ".pwf/workflows/helper.py")
    (warning,) = definition.warnings
    assert "flow.py:1: 'helper' is taken from" in warning
    assert str(project.root / "helper.py") in warning


def test_the_standard_library_stands_before_the_project_and_that_is_reported(project: Project) -> None:
    project.write(".pwf/workflows/random.py", "raise RuntimeError('never')")
    project.workflow("import random\nassert random.random")

    definition = project.definition()

    assert modules(definition) == set()
    (warning,) = definition.warnings
    assert "'random' is taken from Python's standard library" in warning
    assert ".pwf/workflows/random.py" in warning


def test_where_the_standard_library_is_is_known_without_an_import_that_asks_the_finder() -> None:
    code = (
        "import sys, pwf.runner.load.resolve as resolve; known = set(sys.modules); "
        "resolve.ProjectTree('/p', '/p').holds('/p/a.py'); print(*(set(sys.modules) - known))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""
    folders = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    assert folders <= set(library_folders())


def test_the_project_stands_before_installed_packages_and_that_is_reported(
    project: Project, tmp_path: Path
) -> None:
    installed = tmp_path / "installed" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "widget.py").write_text("FROM = 'installed'")
    project.write("widget.py", "FROM = 'root'")
    project.workflow("import widget\nassert widget.FROM == 'root'")

    answer = forked(on_path(installed, lambda: resolve(str(project.flow), str(project.root))))

    definition = sound(answer)
    assert modules(definition) == {"widget"}
    assert any(
        "also offered by" in one and str(installed / "widget.py") in one for one in definition.warnings
    )


def test_a_helper_with_the_name_of_a_package_that_pwf_has_loaded_is_the_helper(project: Project) -> None:
    project.write(".pwf/workflows/outcome.py", "FROM = 'beside'")
    project.workflow("import trio, outcome\nassert outcome.FROM == 'beside'\nassert trio.run")

    assert modules(project.definition()) == {"outcome"}


def test_a_helper_can_not_take_the_place_of_pwf_or_trio(project: Project) -> None:
    project.write(".pwf/workflows/trio.py", "raise RuntimeError('never')")
    project.write(".pwf/workflows/pwf.py", "raise RuntimeError('never')")
    project.workflow("import trio\nassert trio.run")

    definition = project.definition()

    assert modules(definition) == set()
    assert sorted(one.split("'")[1] for one in definition.warnings) == ["pwf", "trio"]


@pytest.mark.parametrize("name", ["msgspec", "outcome", "json"])
def test_a_workflow_named_like_a_package_does_not_hide_the_package_from_itself(
    tmp_path: Path, name: str
) -> None:
    project = Project(Path(os.path.realpath(tmp_path)), f".pwf/workflows/{name}.py")
    project.workflow(f"import {name}\nassert 'workflows' not in {name}.__file__")

    assert [one.kind for one in project.definition().sources] == ["root"]


def test_a_helper_may_import_the_workflows_file_by_its_name(project: Project) -> None:
    project.write(".pwf/workflows/helper.py", "def look():\n    import flow\n    return flow.SECRET")
    project.workflow("import helper\nSECRET = 5\nassert helper.look() == 5")

    assert modules(project.definition()) == {"helper"}


def test_pwf_itself_is_never_the_projects_though_it_stands_under_the_root(tmp_path: Path) -> None:
    repository = Path(__file__).parent.parent.parent
    project = Project(Path(os.path.realpath(tmp_path)), "flow.py")
    project.workflow("import pwf.values, tests.runner.forked", body="import pwf.client\nreturn 1")

    answer = forked(resolve, str(project.flow), str(repository))

    assert modules(sound(answer)) == {"tests", "tests.runner", "tests.runner.forked"}
    assert run_pinned(bundle_of(answer)) == 1


def test_a_package_installed_in_place_under_the_root_is_the_projects(project: Project) -> None:
    project.write("src/mine/__init__.py", "from mine.core import X")
    project.write("src/mine/core.py", "X = 1")
    project.workflow("import mine")

    answer = forked(on_path(project.root / "src", lambda: resolve(str(project.flow), str(project.root))))

    assert modules(sound(answer)) == {"mine", "mine.core"}


def test_a_file_imported_under_two_names_is_recorded_once_with_both(project: Project) -> None:
    project.write("pack/__init__.py", "")
    project.write("pack/part.py", "")
    project.workflow(
        "import sys, os\nsys.path.append(os.path.abspath('pack'))\nimport part\nimport pack.part"
    )

    assert sources(project.definition())["part.py"].module == "pack.part part"


def test_a_workflow_outside_the_project_has_its_helpers_pinned_too(tmp_path: Path) -> None:
    project = Project(Path(os.path.realpath(tmp_path)), "config/workflows/flow.py")
    project.write("config/workflows/helper.py", "")
    project.write("work/tool.py", "")
    project.workflow("import helper, tool")

    answer = forked(resolve, str(project.flow), str(project.root / "work"))

    assert modules(sound(answer)) == {"helper", "tool"}


def test_installed_packages_that_are_used_are_recorded_with_their_versions(project: Project) -> None:
    project.workflow("import msgspec", body="import trio")

    packages = project.definition().packages

    assert set(packages) >= {"msgspec", "pwf-workflows", "trio"}
    assert "pytest" not in packages


def test_a_distribution_with_another_name_than_its_module_is_found(project: Project, tmp_path: Path) -> None:
    installed = tmp_path / "lib" / "site-packages"
    info = installed / "Py_Widget-1.5.dist-info"
    info.mkdir(parents=True)
    (installed / "widget.py").write_text("")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Py-Widget\nVersion: 1.5\n")
    (info / "RECORD").write_text("widget.py,,\nPy_Widget-1.5.dist-info/RECORD,,\n")
    project.workflow("import widget")

    answer = forked(on_path(installed, lambda: resolve(str(project.flow), str(project.root))))

    assert sound(answer).packages["py-widget"] == "1.5"


def test_the_definition_id_is_the_same_for_the_same_code_and_another_after_an_edit(project: Project) -> None:
    project.write("helper.py", "X = 1")
    project.workflow("import helper, json, msgspec")
    first = project.definition()
    assert project.definition() == first

    project.write("helper.py", "X = 2")

    assert project.definition().definition_id != first.definition_id


def test_resolving_leaves_no_byte_code_in_the_project(project: Project) -> None:
    project.write("pack/__init__.py", "")
    project.workflow("import pack")

    project.resolve()

    assert not list(project.root.rglob("__pycache__"))


def test_files_that_are_opened_by_a_literal_path_are_reported_and_pinned_ones_are_not(
    project: Project,
) -> None:
    project.write("data/pinned.txt", "x")
    project.write(
        ".pwf/workflows/flow.py",
        """
        from pathlib import Path
        from pwf import Workflow
        flow = Workflow("flow", files=["data/*.txt"])

        @flow.compute
        def step(ctx):
            open("notes.txt", "w")
            Path("out.bin").write_bytes(b"")
            open("data/pinned.txt")
            Path("loose.json").read_text()
            return open("other.json").read()
        """,
    )

    warnings = project.definition().warnings

    assert [one.split(";")[0] for one in warnings] == [
        f"{project.flow}:11: opens 'loose.json'",
        f"{project.flow}:12: opens 'other.json'",
    ]


def test_a_file_that_is_read_while_the_workflow_loads_is_reported_and_watched(project: Project) -> None:
    table = project.write("table.json", "[1]")
    project.workflow("import os\nname = os.path.join(os.getcwd(), 'table.json')\nTABLE = open(name).read()")

    answer = project.resolve()

    assert any(f"reads {table} while it loads" in one for one in sound(answer).warnings)
    assert answer.watch[str(table)] is not None


@pytest.mark.skipif(sys.platform != "linux", reason="copies a shared object of the running Python")
def test_a_compiled_module_of_the_project_is_recorded_as_its_bytes(project: Project) -> None:
    import _json

    origin = getattr(_json, "__file__", None)
    if origin is None:
        pytest.skip("this Python has its extensions built in")
    target = project.write("_json_copy" + Path(origin).name[5:], Path(origin).read_bytes())
    project.workflow(body="import _json_copy\nreturn 1")

    assert sources(project.definition())[target.name].size == Path(origin).stat().st_size
