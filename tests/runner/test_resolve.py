"""What the resolver answers for files that are wrong, and when an answer may be used again."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from pwf.protocol.spawn import Resolved, encoder, from_spawner
from pwf.runner.load.resolve import resolve
from pwf.watch import SETTLED_NS, definition_id, same_code, still_valid, verify_sources
from tests.runner.forked import forked
from tests.runner.project import Project, age, modules, sound


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(Path(os.path.realpath(tmp_path)) / "project")


# --- files that are wrong --------------------------------------------------------------------------------


def refused(answer: Resolved) -> tuple[str, str, str]:
    """Code, message and hint."""
    assert answer.definition is None
    assert answer.error_code is not None
    assert answer.error is not None
    assert "Traceback" not in answer.error
    return answer.error_code, answer.error, answer.hint or ""


def test_a_syntax_error_names_file_line_and_text(project: Project) -> None:
    project.write(".pwf/workflows/flow.py", "from pwf import Workflow\n\ndef broken(:\n    pass\n")

    code, message, _ = refused(project.resolve())

    assert code == "load_failed"
    assert message.startswith(f"{project.flow}:3: SyntaxError: ")
    assert "    def broken(:\n" in message


def test_a_syntax_error_in_a_helper_names_the_helper(project: Project) -> None:
    helper = project.write("helper.py", "x = 1\ny = (\n")
    project.workflow("import helper")

    code, message, _ = refused(project.resolve())

    assert code == "load_failed"
    assert message.startswith(f"{helper}:2: SyntaxError")


@pytest.mark.parametrize(
    "text", [b"x = '\0'\n", b"x = '\xff'\n", b"# coding: nonsense\n", b"x = 1\n  y = 2\n"]
)
def test_a_text_that_is_no_python_is_a_load_failure(project: Project, text: bytes) -> None:
    project.write(".pwf/workflows/flow.py", text)

    code, message, _ = refused(project.resolve())

    assert code == "load_failed"
    assert message.startswith(f"{project.flow}:")
    assert "Error" in message


def test_a_missing_package_names_the_line_and_what_can_be_done(project: Project) -> None:
    project.workflow("import nothing_like_it.sub")

    code, message, hint = refused(project.resolve())

    assert code == "load_failed"
    assert message == (
        f"{project.flow}:1: import nothing_like_it.sub\n    ModuleNotFoundError: No module named 'nothing_like_it'"
    )
    assert "nothing_like_it.py beside" in hint
    assert "install" in hint


def test_an_exception_while_loading_names_the_innermost_line_of_the_project(project: Project) -> None:
    helper = project.write("helper.py", "import json\ndef f():\n    return json.loads('{')\n")
    project.workflow("import helper\nhelper.f()")

    code, message, _ = refused(project.resolve())

    assert code == "load_failed"
    assert message.startswith(f"{helper}:3: return json.loads('{{')\n    JSONDecodeError: ")


def test_a_syntax_error_that_the_code_itself_causes_names_the_line_that_did(project: Project) -> None:
    project.workflow("import ast\nast.literal_eval('(')")

    _, message, _ = refused(project.resolve())

    assert message.startswith(f"{project.flow}:2: ast.literal_eval('(')")


def test_a_relative_import_in_the_workflows_file_says_how_to_import(project: Project) -> None:
    project.write(".pwf/workflows/helper.py", "")
    project.workflow("from . import helper")

    _, message, hint = refused(project.resolve())

    assert message.startswith(f"{project.flow}:1: from . import helper")
    assert "by their plain name" in hint


@pytest.mark.parametrize("ending", ["raise SystemExit(3)", "import sys; sys.exit(3)"])
def test_a_file_that_ends_the_process_is_a_load_failure(project: Project, ending: str) -> None:
    project.workflow(ending)

    code, message, hint = refused(project.resolve())

    assert code == "load_failed"
    assert f"{project.flow}:1: " in message
    assert "SystemExit: 3" in message
    assert "__main__" in hint


def test_an_exception_that_can_not_be_shown_is_still_a_load_failure(project: Project) -> None:
    project.workflow("class E(Exception):\n    def __str__(self):\n        raise KeyError\nraise E")

    code, message, _ = refused(project.resolve())

    assert code == "load_failed"
    assert f"{project.flow}:4: raise E" in message


def test_a_file_without_a_workflow_is_told_apart(project: Project) -> None:
    project.write(".pwf/workflows/flow.py", "from pwf import Workflow\n")

    code, message, _ = refused(project.resolve())

    assert code == "no_workflow"
    assert str(project.flow) in message


def test_two_workflows_in_one_file_are_a_graph_error(project: Project) -> None:
    project.workflow("from pwf import Workflow\nother = Workflow('other')")

    code, message, hint = refused(project.resolve())

    assert code == "graph_error"
    assert "'other'" in message
    assert "'flow'" in message
    assert hint


def test_a_graph_error_names_file_and_line_and_the_fix(project: Project) -> None:
    project.write(
        ".pwf/workflows/flow.py",
        """
        from pwf import Workflow
        flow = Workflow("flow")

        @flow.compute
        def one(ctx):
            return 1

        @flow.compute
        def two(ctx):
            return 2

        flow.graph(one)
        """,
    )

    code, message, hint = refused(project.resolve())

    assert code == "graph_error"
    assert "two" in message
    assert f"{project.flow}:" in message
    assert hint


def resolve_as_nobody(project: Project) -> Resolved:
    """Root reads everything, so give that up first."""
    if os.geteuid() == 0:
        os.seteuid(65534)
    return resolve(str(project.flow), str(project.root))


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "unreadable"])
def test_a_path_that_can_not_be_read_is_a_load_failure(project: Project, kind: str) -> None:
    project.flow.parent.mkdir(parents=True)
    if kind == "folder":
        project.flow.mkdir()
    elif kind == "fifo":
        os.mkfifo(project.flow)
    elif kind == "unreadable":
        project.workflow().chmod(0)

    code, message, _ = refused(forked(resolve_as_nobody, project))

    assert code == "load_failed"
    assert str(project.flow) in message


def test_an_error_is_watched_like_an_answer(project: Project) -> None:
    helper = project.write("helper.py", "raise ValueError")
    project.workflow("import helper")
    wait_until_settled()
    answer = project.resolve()
    assert answer.error_code == "load_failed"
    assert still_valid(answer.watch)

    helper.write_text("")

    assert not still_valid(answer.watch)


def test_byte_code_without_a_source_is_refused(project: Project) -> None:
    import py_compile

    source = project.write("old.py", "")
    py_compile.compile(str(source), cfile=str(project.root / "old.pyc"))
    source.unlink()
    project.workflow("import old")

    code, message, _ = refused(project.resolve())

    assert code == "load_failed"
    assert "byte code without its source" in message


def test_a_helper_that_does_not_parse_but_is_only_named_is_a_warning(project: Project) -> None:
    late = project.write("late.py", "def (")
    project.workflow(body="import late")

    definition = project.definition()

    assert modules(definition) == {"late"}
    assert any(one.startswith(f"{late}:1: does not parse") for one in definition.warnings)


# --- when an answer may be used again --------------------------------------------------------------------


def wait_until_settled() -> None:
    """Let what was just written become old enough to be trusted. Its change time can't be set, so this is real."""
    time.sleep(SETTLED_NS / 1e9 * 1.5)


def settled(project: Project) -> Resolved:
    """An answer whose folders, too, have stood for a while."""
    wait_until_settled()
    answer = project.resolve()
    sound(answer)
    assert still_valid(answer.watch)
    return answer


@pytest.mark.parametrize("file", [".pwf/workflows/flow.py", "pack/__init__.py", "pack/late.py", "data/a.txt"])
def test_an_answer_is_valid_until_a_file_that_it_depends_on_is_edited(project: Project, file: str) -> None:
    project.write("pack/__init__.py", "")
    project.write("pack/late.py", "")
    project.write("data/a.txt", "x")
    project.write("unrelated.py", "")
    text = project.workflow(body="import pack.late").read_text()
    project.write(".pwf/workflows/flow.py", text.replace('"flow"', '"flow", files=["data/*.txt"]'))
    answer = settled(project)

    project.write("unrelated.py", "edited")
    project.write("pack/unrelated.txt", "new")
    assert still_valid(answer.watch)

    with open(project.root / file, "a") as handle:
        handle.write("\n")
    assert not still_valid(answer.watch)


@pytest.mark.parametrize(
    "appears",
    [
        ".pwf/workflows/helper.py",
        ".pwf/workflows/helper/__init__.py",
        "helper/__init__.py",
        "optional.py",
        "data/b.txt",
        "data/deep/c.txt",
    ],
)
def test_an_answer_is_no_longer_valid_when_a_file_appears_that_changes_it(
    project: Project, appears: str
) -> None:
    project.write("helper.py", "")
    project.write("data/a.txt", "")
    project.write("data/deep/note.md", "")
    text = project.workflow(
        "import helper\ntry:\n    import optional\nexcept ImportError:\n    optional = None"
    ).read_text()
    project.write(".pwf/workflows/flow.py", text.replace('"flow"', '"flow", files=["data/**/*.txt"]'))
    answer = settled(project)

    project.write(appears, "")

    assert not still_valid(answer.watch)


def test_an_answer_is_no_longer_valid_when_a_file_is_deleted_or_replaced_by_one_of_the_same_size_and_time(
    project: Project,
) -> None:
    helper = project.write("helper.py", "X = 1")
    project.workflow("import helper")
    answer = settled(project)
    found = helper.stat()

    other = project.write("other.py", "X = 2")
    os.utime(other, ns=(found.st_atime_ns, found.st_mtime_ns))
    os.replace(other, helper)
    assert not still_valid(answer.watch)

    helper.unlink()
    assert not still_valid(answer.watch)


def test_an_answer_from_a_file_written_in_this_instant_is_not_used_again(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.watch.SETTLED_NS", 60_000_000_000)  # however slow this machine is just now
    project.workflow()
    project.flow.write_text(project.flow.read_text())

    answer = project.resolve()

    sound(answer)
    assert not still_valid(answer.watch)


def test_a_new_file_in_a_folder_that_the_workflow_lists_while_it_loads_is_noticed(project: Project) -> None:
    project.write("plugins/__init__.py", "")
    project.write("plugins/a.py", "")
    project.workflow("import pkgutil, plugins\nNAMES = list(pkgutil.iter_modules(plugins.__path__))")
    answer = settled(project)

    project.write("plugins/b.py", "")

    assert not still_valid(answer.watch)


def test_a_file_with_a_time_in_the_future_is_trusted_like_any_other(project: Project) -> None:
    age(project.workflow(), -3_600)

    settled(project)


def test_an_upgrade_of_an_installed_package_is_noticed(project: Project) -> None:
    import msgspec

    project.workflow("import msgspec")

    watch = project.resolve().watch

    assert os.path.realpath(Path(msgspec.__file__).parent.parent) in watch


def test_a_link_to_the_workflow_is_watched_and_its_helpers_stand_beside_the_target(project: Project) -> None:
    project.write("flows/real.py", "import helper\nfrom pwf import Workflow\nflow = Workflow('real')\n"
                  "@flow.compute\ndef step(ctx): return 1\n")  # fmt: skip
    project.write("flows/helper.py", "")
    project.write("flows/other.py", "")
    project.flow.parent.mkdir(parents=True)
    project.flow.symlink_to("../../flows/real.py")
    answer = settled(project)
    assert modules(sound(answer)) == {"helper"}

    project.flow.unlink()
    project.flow.symlink_to("../../flows/other.py")

    assert not still_valid(answer.watch)


def test_the_answer_survives_the_wire(project: Project) -> None:
    project.write("helper.py", "X = 'é'")
    project.workflow("import helper")
    answer = project.resolve()

    again = from_spawner.decode(encoder.encode(answer))

    assert again == answer
    assert isinstance(again, Resolved)
    assert still_valid(again.watch) == still_valid(answer.watch)


# --- comparing with what was recorded --------------------------------------------------------------------


def test_verify_names_the_recorded_files_that_changed_or_are_gone_and_no_others(project: Project) -> None:
    helper = project.write("helper.py", "X = 1")
    project.write("data/a.txt", "a")
    text = project.workflow("import helper").read_text()
    project.write(".pwf/workflows/flow.py", text.replace('"flow"', '"flow", files=["data/*"]'))
    definition = project.definition()
    assert verify_sources(definition.sources, definition.root) == []

    helper.write_text("X = 2")
    (project.root / "data/a.txt").unlink()
    project.write("data/new.txt", "")
    assert verify_sources(definition.sources, definition.root) == [str(helper), "data/a.txt"]

    helper.write_text("X = 1")
    project.write("data/a.txt", "a")
    assert verify_sources(definition.sources, definition.root) == []

    shutil.rmtree(project.root)
    assert len(verify_sources(definition.sources, definition.root)) == 3


def test_same_code_looks_at_texts_only(project: Project) -> None:
    project.workflow("import random")
    before = project.definition()
    project.write("random.py", "")  # another warning, the same code
    after = project.definition()

    assert after.definition_id != before.definition_id
    assert same_code(before, after)
    assert definition_id(after) == after.definition_id

    project.workflow("import random, json")
    assert not same_code(before, project.definition())
