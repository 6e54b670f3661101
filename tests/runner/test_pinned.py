"""A run executes the bytes that were recorded, whatever stands in the files by then (C1)."""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from pwf.errors import GraphError, LoadFailed, PwfError
from pwf.protocol.spawn import SourceBundle
from pwf.runner.load.pinned import load_bundle
from tests.runner.forked import forked
from tests.runner.project import Project, bundle_of, run_pinned, with_pinned


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(Path(os.path.realpath(tmp_path)) / "project")


def test_a_lazy_import_takes_the_recorded_text_after_the_file_was_edited_deleted_or_replaced(
    project: Project,
) -> None:
    project.write("pack/__init__.py", "")
    project.write("pack/late.py", "VALUE = 'recorded'")
    flow = project.workflow(body="import pack.late\nreturn pack.late.VALUE")
    bundle = project.bundle()

    flow.write_text("syntax error here")
    (project.root / "pack/late.py").write_text("VALUE = 'edited'")
    assert run_pinned(bundle) == "recorded"

    shutil.rmtree(project.root / "pack")
    (project.root / "pack.py").write_text("raise RuntimeError('never')")
    assert run_pinned(bundle) == "recorded"

    shutil.rmtree(project.root)
    assert run_pinned(bundle) == "recorded"


def test_an_edit_between_loading_and_a_late_import_changes_nothing(project: Project) -> None:
    late = project.write("late.py", "VALUE = 'recorded'")
    project.workflow(body="import late\nreturn late.VALUE")
    bundle = project.bundle()

    def use(workflow: Any) -> Any:
        late.write_text("VALUE = 'edited'")
        return workflow.nodes["step"].fn(None)

    assert with_pinned(bundle, use) == "recorded"


def test_modules_keep_their_original_paths_names_and_packages(project: Project) -> None:
    project.write("pack/__init__.py", "from . import inner")
    project.write("pack/inner.py", "def facts():\n    return (__name__, __package__, __file__)")
    project.workflow(
        body="import pack\nreturn pack.inner.facts(), pack.__path__, pack.__spec__.origin, __file__"
    )

    facts, folders, origin, file = run_pinned(project.bundle())

    assert facts == ("pack.inner", "pack", str(project.root / "pack/inner.py"))
    assert folders == [str(project.root / "pack")]
    assert origin == str(project.root / "pack/__init__.py")
    assert file == str(project.flow)


def test_relative_imports_and_namespace_packages_load_without_their_folders(project: Project) -> None:
    project.write("space/deep/pack/__init__.py", "from .left import L\nfrom ..sibling import S")
    project.write("space/deep/pack/left.py", "L = 1")
    project.write("space/deep/sibling.py", "S = 2")
    project.workflow(body="from space.deep import pack\nimport space.deep.sibling\nreturn pack.L + pack.S")
    bundle = project.bundle()
    shutil.rmtree(project.root)

    assert run_pinned(bundle) == 3


def test_a_namespace_is_shared_with_installed_packages(project: Project, tmp_path: Path) -> None:
    installed = tmp_path / "lib" / "site-packages" / "space"
    installed.mkdir(parents=True)
    (installed / "theirs.py").write_text("VALUE = 1")
    project.write("space/ours.py", "VALUE = 2")
    project.workflow(body="import space.ours, space.theirs\nreturn space.ours.VALUE + space.theirs.VALUE")
    bundle = project.bundle()

    def use() -> Any:
        sys.path.append(str(installed.parent))
        return load_bundle(bundle).nodes["step"].fn(None)

    assert forked(use) == 3


def test_tracebacks_show_the_pinned_text_under_the_original_path(project: Project) -> None:
    helper = project.write("helper.py", "def fail():\n    raise ValueError('pinned line')\n")
    project.workflow(body="import helper\nhelper.fail()")
    bundle = project.bundle()
    helper.write_text("# edited\n# edited\n")

    def use(workflow: Any) -> str:
        try:
            workflow.nodes["step"].fn(None)
        except ValueError:
            return traceback.format_exc()
        raise AssertionError

    text = with_pinned(bundle, use)
    assert f'File "{helper}", line 2, in fail' in text
    assert "raise ValueError('pinned line')" in text
    assert f'File "{project.flow}"' in text
    assert "helper.fail()" in text


@pytest.mark.parametrize("gone", [True, False])
def test_inspect_shows_the_pinned_text(project: Project, gone: bool) -> None:
    helper = project.write("helper.py", "def f():\n    return 'pinned'\n")
    project.workflow("import helper")
    bundle = project.bundle()
    helper.unlink() if gone else helper.write_text("def f():\n    return 'edited'\n")

    def use(workflow: Any) -> tuple[str, str]:
        return inspect.getsource(sys.modules["helper"].f), inspect.getsource(sys.modules["helper"])

    assert with_pinned(bundle, use) == ("def f():\n    return 'pinned'\n",) * 2


@pytest.mark.parametrize("how", ["importlib.import_module", "__import__"])
def test_a_project_module_that_was_not_recorded_is_refused_with_what_to_do(
    project: Project, how: str
) -> None:
    late = project.write("late.py", "VALUE = 1")
    project.workflow("import importlib", body=f"name = 'la' + 'te'\nreturn {how}(name)")
    bundle = project.bundle()

    def use(workflow: Any) -> str:
        try:
            workflow.nodes["step"].fn(None)
        except ImportError as error:
            return str(error)
        raise AssertionError

    message = with_pinned(bundle, use)
    assert f"the project's module 'late' ({late}) was not recorded" in message
    assert f"import it at the top of the workflow's file ({project.flow})" in message


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("pack.late", ["pack/__init__.py", "pack/late.py"]),
        ("folder.late", ["folder/late.py"]),
        ("late", ["lib/late.py"]),
        ("late", [".pwf/workflows/late.py"]),
    ],
)
def test_an_unrecorded_module_is_refused_wherever_it_stands(
    project: Project, name: str, files: list[str]
) -> None:
    for file in files:
        project.write(file, "")
    project.workflow(
        "import importlib, os, sys\nsys.path.append(os.path.join(os.getcwd(), 'lib'))",
        body=f"return importlib.import_module(''.join({list(name)!r}))",
    )

    def use(workflow: Any) -> str:
        try:
            workflow.nodes["step"].fn(None)
        except ImportError as error:
            return str(error)
        raise AssertionError

    assert "was not recorded when this run started" in with_pinned(project.bundle(), use)


def test_a_module_that_exists_nowhere_is_an_ordinary_error(project: Project) -> None:
    project.workflow(
        body="try:\n    import nowhere\nexcept ModuleNotFoundError as error:\n    return str(error)"
    )

    assert run_pinned(project.bundle()) == "No module named 'nowhere'"


def test_a_file_that_appears_later_does_not_hide_an_installed_package(project: Project) -> None:
    project.workflow(body="import sortedcontainers\nreturn sortedcontainers.__file__")
    bundle = project.bundle()
    project.write("sortedcontainers.py", "")
    project.write(".pwf/workflows/sortedcontainers.py", "")

    assert "site-packages" in run_pinned(bundle)


def test_the_order_of_names_is_the_same_as_when_it_was_recorded(project: Project) -> None:
    project.write(".pwf/workflows/helper.py", "FROM = 'beside'")
    project.write("helper.py", "FROM = 'root'")
    project.write("random.py", "FROM = 'root'")
    project.write("outcome.py", "FROM = 'root'")
    project.workflow(
        body="import helper, outcome, random, trio\nreturn helper.FROM, outcome.FROM, hasattr(random, 'seed')"
    )
    bundle = project.bundle()
    (project.root / ".pwf/workflows/helper.py").unlink()

    assert run_pinned(bundle) == ("beside", "root", True)


def test_two_projects_with_modules_of_the_same_name_never_meet(tmp_path: Path) -> None:
    bundles = []
    for name in ("one", "two"):
        project = Project(Path(os.path.realpath(tmp_path)) / name)
        project.write("helper.py", f"FROM = {name!r}")
        project.workflow(body="import helper\nreturn helper.FROM")
        bundles.append(project.bundle())

    assert [run_pinned(bundle) for bundle in bundles] == ["one", "two"]


def test_package_data_and_listings_work(project: Project) -> None:
    project.write("pack/__init__.py", "")
    project.write("pack/a.py", "")
    project.write("pack/words.txt", "hello")
    project.workflow(
        "import pack.a",
        body="""
        import importlib.resources, pkgutil
        names = [found.name for found in pkgutil.iter_modules(pack.__path__)]
        text = importlib.resources.files("pack").joinpath("words.txt").read_text()
        return names, text, pkgutil.get_data("pack", "words.txt"), pkgutil.get_data("pack", "a.py")
        """,
    )
    bundle = project.bundle()
    project.write("pack/b.py", "")
    project.write("pack/a.py", "edited")

    assert run_pinned(bundle) == (["a"], "hello", b"hello", b"")


def test_types_of_the_workflow_and_its_helpers_resolve_their_annotations(project: Project) -> None:
    project.write(
        "shapes.py",
        """
        from __future__ import annotations
        import msgspec
        class A(msgspec.Struct):
            b: B
        class B(msgspec.Struct):
            n: int
        """,
    )
    project.workflow(
        "from __future__ import annotations\nimport msgspec\nfrom shapes import A\nclass C(msgspec.Struct):\n    a: A",
        body="return msgspec.convert({'a': {'b': {'n': 3}}}, C).a.b.n",
    )

    assert run_pinned(project.bundle()) == 3


def test_reloading_a_module_gives_the_recorded_text_again(project: Project) -> None:
    helper = project.write("helper.py", "VALUE = 'recorded'")
    project.workflow("import helper, importlib", body="return importlib.reload(helper).VALUE")
    bundle = project.bundle()
    helper.write_text("VALUE = 'edited'")

    assert run_pinned(bundle) == "recorded"


def test_texts_are_executed_byte_for_byte_in_their_own_encoding(project: Project) -> None:
    project.write("latin.py", "# -*- coding: latin-1 -*-\nVALUE = 'é'\n".encode("latin-1"))
    project.write("marked.py", b"\xef\xbb\xbfVALUE = 'b'\r\n")
    project.workflow(body="import latin, marked\nreturn latin.VALUE + marked.VALUE")

    assert run_pinned(project.bundle()) == "éb"


@pytest.mark.skipif(sys.platform != "linux", reason="copies a shared object of the running Python")
def test_a_compiled_module_is_loaded_from_its_recorded_bytes(project: Project) -> None:
    import _heapq

    origin = getattr(_heapq, "__file__", None)
    if origin is None:
        pytest.skip("this Python has its extensions built in")
    target = project.write("pack/_heapq" + Path(origin).name[6:], Path(origin).read_bytes())
    project.write("pack/__init__.py", "")
    project.workflow(body="import pack._heapq as h\nreturn h.heappop([3]), h.__file__")
    bundle = project.bundle()
    target.unlink()

    assert run_pinned(bundle) == (3, str(target))


def test_loading_leaves_the_working_folder_and_nothing_of_the_project_on_the_search_path(
    project: Project,
) -> None:
    project.workflow(
        "import os, sys\nHERE = os.getcwd()\nARGUMENTS = sys.argv", body="return HERE, ARGUMENTS"
    )
    bundle = project.bundle()

    def use() -> Any:
        os.chdir("/")
        sys.path[:0] = ["", str(project.root), str(project.flow.parent)]
        here = load_bundle(bundle).nodes["step"].fn(None)
        return (
            here,
            os.getcwd(),
            [entry for entry in sys.path if entry in ("", *map(str, project.root.rglob("*")))],
        )

    assert forked(use) == ((str(project.root), [str(project.flow)]), "/", [])


def failure(bundle: SourceBundle) -> tuple[type[PwfError], str]:
    """How loading fails."""

    def use() -> tuple[type[PwfError], str]:
        try:
            load_bundle(bundle)
        except PwfError as error:
            return type(error), error.message
        raise AssertionError

    return forked(use)


def test_code_that_no_longer_loads_says_where_in_the_pinned_text(project: Project) -> None:
    helper = project.write(
        "helper.py", "import os\nif os.path.exists('broken'):\n    raise OSError('no such disk')\n"
    )
    project.workflow("import helper")
    bundle = project.bundle()
    project.write("broken", "")
    helper.unlink()

    kind, message = failure(bundle)

    assert kind is LoadFailed
    assert message.startswith(f"{helper}:3: raise OSError('no such disk')")
    assert message.endswith("OSError: no such disk")


def test_a_graph_that_depends_on_the_machine_and_is_wrong_now_is_a_graph_error(project: Project) -> None:
    project.write(
        ".pwf/workflows/flow.py",
        """
        import os
        from pwf import Workflow
        flow = Workflow("flow")
        for number in range(2 if os.path.exists("two") else 1):
            @flow.compute
            def step(ctx):
                return 1
        """,
    )
    bundle = bundle_of(project.resolve())
    project.write("two", "")

    kind, message = failure(bundle)

    assert issubclass(kind, GraphError)
    assert str(project.flow) in message


def test_an_optional_import_of_a_module_that_appeared_later_stays_absent(project: Project) -> None:
    project.workflow(body="try:\n    import extra\nexcept ModuleNotFoundError:\n    return 'absent'")
    bundle = project.bundle()
    project.write("extra.py", "")

    assert run_pinned(bundle) == "absent"
