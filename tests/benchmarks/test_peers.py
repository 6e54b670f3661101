"""Peers: what their scripts tell becomes rows, what can't be had is reported, nothing they start is left."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from benchmarks import environments
from benchmarks.bench import Bench
from benchmarks.environments import CanNotInstall
from benchmarks.peers import driving
from benchmarks.peers.driving import Peer, measure, peers, prepare
from benchmarks.rows import Row

FAKE = "tests.benchmarks.fake_peer"


def rows_of(part: str, note: Path) -> list[Row]:
    peer = Peer("Fake", (), FAKE, part=part)
    return list(measure(peer, Path(sys.executable), str(note), Bench(quick=True)))


def ends(pid: int) -> bool:
    """Whether it is gone soon: it was killed, and somebody has still to reap it."""
    for _ in range(200):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.01)
    return False


def test_what_a_script_tells_becomes_rows_with_engine_and_durability(tmp_path: Path) -> None:
    found = rows_of("whole", tmp_path / "left")
    assert {row.engine for row in found} == {"Fake 1.0"}
    assert {row.durability for row in found} == {"none at all"}
    assert [(row.what, row.subject) for row in found] == [
        ("called, median", "one step, median"),
        ("called, 99th percentile", "one step, 99th percentile"),
        ("slow", ""),
        ("fast", "ten steps, best rate"),
        ("last", ""),
    ]
    assert (found[0].value.median, found[0].better) == (1.0, "less")
    assert (found[3].value.median, found[3].value.count) == (20.0, 3)


def test_a_script_that_fails_is_told_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="ValueError: it does not work"):
        rows_of("fails", tmp_path / "left")


def test_a_server_of_a_script_that_is_given_up_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "left"
    rows = measure(Peer("Fake", (), FAKE), Path(sys.executable), str(note), Bench(quick=True))
    while next(rows).what != "last":
        pass
    rows.close()  # type: ignore[attr-defined]
    assert ends(int(note.read_text()))


def test_a_peer_that_can_not_be_installed_is_reported_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def python(name: str, _packages: Sequence[str], _made_by: str) -> Path:
        if name == "huey":
            raise CanNotInstall("no matching distribution")
        return Path(sys.executable)

    monkeypatch.setattr(driving, "python_with", python)
    monkeypatch.setattr(
        driving,
        "peers",
        lambda: [peer for peer in peers() if not peer.part and peer.name not in ("Restate", "dura")],
    )
    found, missing = prepare(lambda _: None)
    assert [name for name, _ in found] == ["LangGraph, SQLite saver"]
    assert [(one.name, one.why) for one in missing] == [
        ("Huey, SQLite", "can not be installed: no matching distribution")
    ]


def test_an_interpreter_that_only_says_it_is_not_chosen_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shims, real = tmp_path / "shims", tmp_path / "versions" / "3.13.0" / "bin"
    for folder, code in ((shims, 1), (real, 0)):
        folder.mkdir(parents=True)
        (folder / "python3.13").write_text(f"#!/bin/sh\nexit {code}\n")
        (folder / "python3.13").chmod(0o700)
    monkeypatch.setenv("PATH", str(shims))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    assert environments.python_from((3, 13)) == str(real / "python3.13")
    (real / "python3.13").unlink()
    with pytest.raises(CanNotInstall, match=r"needs Python 3\.13 or newer"):
        environments.python_from((3, 13))


def test_a_half_made_environment_is_thrown_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PWF_BENCH_CACHE", str(tmp_path))

    def half(folder: Path) -> None:
        (folder / "bin").mkdir()
        raise CanNotInstall("the registry is away")

    with pytest.raises(CanNotInstall):
        environments.made("some", ["a-package"], half)
    assert not list((tmp_path / "environments").iterdir())


def test_an_environment_is_made_once_for_the_same_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWF_BENCH_CACHE", str(tmp_path))
    made: list[Path] = []
    places = [environments.made("some", packages, made.append) for packages in (["a"], ["a"], ["a", "b"])]
    assert places[0] == places[1] != places[2]
    assert made == [places[0], places[2]]


def test_an_installer_s_last_word_is_the_reason(tmp_path: Path) -> None:
    code = "import sys; print('collecting', file=sys.stderr); sys.exit('ERROR: no such package')"
    with pytest.raises(CanNotInstall, match="ERROR: no such package"):
        environments.run([sys.executable, "-c", code])


def test_postgres_is_used_only_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(environments, "SYSTEM_POSTGRES", tmp_path / "postgresql")
    with pytest.raises(CanNotInstall, match="is not on this machine"):
        environments.postgres_programs()
    for name in ("initdb", "postgres"):
        (tmp_path / name).touch()
    assert environments.postgres_programs() == str(tmp_path)
