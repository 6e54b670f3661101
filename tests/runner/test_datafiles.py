"""Data that a workflow pins with `files=`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pwf.protocol.spawn import Resolved
from pwf.runner.load import datafiles
from pwf.runner.load.resolve import resolve
from tests.runner.forked import forked
from tests.runner.project import Project, sound

HOSTILE = Path(__file__).parent.parent / "data" / "strings" / "blns.json"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(Path(os.path.realpath(tmp_path)) / "project")


def pin(project: Project, *patterns: str) -> Resolved:
    """Resolve a workflow with these patterns."""
    text = project.workflow().read_text()
    project.write(".pwf/workflows/flow.py", text.replace('"flow"', f'"flow", files={list(patterns)!r}'))
    return project.resolve()


def pinned(answer: Resolved) -> dict[str, bytes]:
    """The pinned files' bytes by name."""
    found = [one for one in sound(answer).sources if one.kind == "data"]
    assert all(one.size == len(answer.texts[one.digest]) for one in found)
    return {one.path: answer.texts[one.digest] for one in found}


def test_files_are_pinned_with_their_exact_bytes_under_their_path_from_the_root(project: Project) -> None:
    project.write("conf/a.bin", b"\x00\xff\r\n")
    project.write("conf/deep/b.txt", "b")
    project.write("other.txt", "c")

    assert pinned(pin(project, "conf/**/*", "other.txt")) == {
        "conf/a.bin": b"\x00\xff\r\n",
        "conf/deep/b.txt": b"b",
        "other.txt": b"c",
    }


def test_folders_hidden_files_and_virtual_environments_are_left_out(project: Project) -> None:
    project.write("a.json", "1")
    project.write(".secret/b.json", "2")
    project.write("venv/pyvenv.cfg", "")
    project.write("venv/lib/python3.11/site-packages/c/d.json", "3")
    (project.root / "folder.json").mkdir()

    assert set(pinned(pin(project, "**/*.json"))) == {"a.json"}


def test_a_hidden_file_is_pinned_when_the_pattern_names_it(project: Project) -> None:
    project.write(".pwf/settings.json", "{}")

    assert set(pinned(pin(project, ".pwf/settings.json"))) == {".pwf/settings.json"}


def test_a_plain_path_that_is_missing_is_an_error_and_an_empty_glob_a_warning(project: Project) -> None:
    answer = pin(project, "missing.json")
    assert answer.error_code == "load_failed"
    assert "'missing.json'" in (answer.error or "")

    (warning,) = sound(pin(project, "*.nothing")).warnings
    assert "'*.nothing', which matches no file" in warning


@pytest.mark.parametrize("pattern", ["/etc/hosts", "../x", "a/../../x", "", "a\0b"])
def test_a_pattern_that_leaves_the_root_is_a_graph_error(project: Project, pattern: str) -> None:
    answer = pin(project, pattern)

    assert answer.error_code == "graph_error"
    assert "files=" in (answer.error or "")


def test_more_than_the_limit_is_one_clear_error_before_anything_large_is_read(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datafiles, "DATA_BYTES_MAX", 1_000)
    project.write("a.bin", b"a" * 600)
    project.write("b.bin", b"b" * 600)

    answer = pin(project, "*.bin")

    assert answer.error_code == "load_failed"
    assert "1,000 bytes" in (answer.error or "")
    assert "'b.bin'" in (answer.error or "")


def test_special_files_are_never_opened(project: Project) -> None:
    project.write("a.dat", "1")
    os.mkfifo(project.root / "pipe.dat")

    assert set(pinned(pin(project, "*.dat"))) == {"a.dat"}


def test_a_name_that_is_not_utf8_is_an_error_that_shows_it(project: Project) -> None:
    project.root.mkdir(parents=True)
    try:
        with open(os.fsencode(project.root) + b"/bad-\xff.dat", "w"):
            pass
    except OSError:
        pytest.skip("this file system has only UTF-8 names")

    answer = pin(project, "*.dat")

    assert answer.error_code == "load_failed"
    assert "'bad-\\udcff.dat', whose name is not UTF-8" in (answer.error or "")


def test_hostile_file_names_are_pinned_under_exactly_their_name(project: Project) -> None:
    names: dict[str, bytes] = {}
    for number, text in enumerate(json.loads(HOSTILE.read_text())):
        name = f"names/{text}"
        if "/" in text or text.startswith(".") or not text:
            continue
        try:
            project.write(name, str(number))
        except (OSError, ValueError):  # too long, or a NUL: the OS refuses it
            continue
        names[name] = str(number).encode()
    assert len(names) > 300

    assert pinned(pin(project, "names/*")) == names


def test_a_link_to_a_file_elsewhere_is_pinned_under_the_links_name(project: Project, tmp_path: Path) -> None:
    (tmp_path / "shared.txt").write_text("shared")
    project.root.mkdir(parents=True)
    (project.root / "link.txt").symlink_to(tmp_path / "shared.txt")

    assert pinned(pin(project, "link.txt")) == {"link.txt": b"shared"}


def test_too_many_modules_are_one_clear_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from pwf.runner.load import snapshot

    monkeypatch.setattr(snapshot, "SOURCES_MAX", 3)
    for number in range(5):
        project.write(f"m{number}.py", "")
    project.workflow("import m0, m1, m2, m3, m4")

    answer = forked(resolve, str(project.flow), str(project.root))

    assert answer.error_code == "load_failed"
    assert "more than 3 files" in (answer.error or "")
