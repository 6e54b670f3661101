"""The store on a disk that fails at each single system call: what was acknowledged is there, and never a half.

The script is always the same: commits of small and large values, a checkpoint in between, a clean end. It is run once
for each call that SQLite makes, and the fault comes at that call.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pwf.errors import OutcomeUnknown, PwfError, StoreBroken, StoreRefused
from pwf.store.batch import Job, Writer
from pwf.store.database import open_writer
from tests.sim.disk import Disk, PagesDropped, PowerFails, ShortRead
from tests.store.inline_executor import run_from_loop
from tests.store.support import keys, make_spec, put

COMMITS = 8
CHECKPOINT_AT = 4
WIDE = "k" * 3_000  # several pages a commit
CHANCES = 3


class Counted:
    """Raises `what` at the nth call of a kind that matters, once or from then on."""

    def __init__(
        self, number: int, what: BaseException, acts: frozenset[str], *, lasts: bool = False
    ) -> None:
        self.calls = 0
        self._number = number
        self._what = what
        self._acts = acts
        self._lasts = lasts

    def __call__(self, act: str, file: str) -> None:
        if act not in self._acts or not file.endswith(("pwf.db", "-wal")):
            return
        self.calls += 1
        if self.calls == self._number or (self._lasts and self.calls > self._number):
            raise self._what


CHANGES = frozenset({"write", "sync", "truncate", "delete"})


class Script:
    """A store that commits `COMMITS` keys. `told`: those that were acknowledged; `maybe`: of unknown outcome."""

    def __init__(self, folder: Path, chance: int = 0) -> None:
        open_writer(folder / "pwf.db").close()
        self.disk = Disk(folder, random.Random(chance))
        self.told: list[str] = []
        self.maybe: list[str] = []
        self.refused: list[str] = []
        self.is_broken = False

    def run(self, fail: Counted, *, killed: bool = False) -> None:
        mount = self.disk.mount()
        mount.fail = fail
        try:
            writer = make_spec(self.disk.folder, vfs=mount.mount_name, synchronous="FULL").writer()
        except (PwfError, apsw.Error):
            return
        try:
            for number in range(COMMITS):
                self._commit(writer, f"{number}{WIDE}", from_loop=number % 2 == 1)
                if self.is_broken or mount.dead:
                    return
                if number == CHECKPOINT_AT:
                    writer.checkpoint(cut=True)
                    if mount.dead:
                        return
        finally:
            mount.dead |= killed
            with_close(writer)
            mount.dead = True

    def _commit(self, writer: Writer, key: str, *, from_loop: bool = False) -> None:
        jobs = [Job(put, key)]
        batch = run_from_loop(writer, jobs) if from_loop else writer.run(jobs)
        error = batch.answers[0].error
        if error is None:
            self.told.append(key)
        elif isinstance(error, OutcomeUnknown):
            self.maybe.append(key)
        else:
            self.refused.append(key)
        self.is_broken = batch.broken is not None

    def after(self) -> list[str]:
        """What a later start finds: it opens, and the file is sound."""
        mount = self.disk.mount()
        writer = make_spec(self.disk.folder, vfs=mount.mount_name, synchronous="FULL").writer()
        try:
            assert writer.tx.all("PRAGMA integrity_check") == [("ok",)]
            found: list[str] = keys(writer.tx)
            return found
        finally:
            writer.close()

    def check(self) -> None:
        found = self.after()
        assert set(self.told) <= set(found), "what was acknowledged is there"
        assert set(found) <= set(self.told) | set(self.maybe), "what was refused is not"


def with_close(writer: Writer) -> None:
    try:
        writer.close()
    except (apsw.Error, StoreBroken):
        return


def calls_of(folder: Path, acts: frozenset[str] = CHANGES) -> int:
    """How many calls the script makes when nothing fails."""
    counted = Counted(-1, AssertionError(), acts)
    script = Script(folder)
    script.run(counted)
    assert len(script.told) == COMMITS
    script.check()
    return counted.calls


def each_call(
    tmp_path: Path, acts: frozenset[str] = CHANGES, chance: int = 0
) -> Iterator[tuple[int, Script]]:
    """The number of each call that the script makes, with a script of its own to fail there."""
    (tmp_path / "count").mkdir()
    for number in range(1, calls_of(tmp_path / "count", acts) + 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        yield number, Script(folder, chance)


@pytest.mark.parametrize(
    "chance", [0, *(pytest.param(more, marks=pytest.mark.rest) for more in range(1, CHANCES))]
)
def test_when_power_fails_at_any_call_what_was_acknowledged_is_there_and_never_a_half(tmp_path, chance):
    calls = 0
    for calls, script in each_call(tmp_path, chance=chance):
        script.run(Counted(calls, PowerFails(), CHANGES))
        script.disk.lose_power()
        script.maybe += script.refused  # the machine went off: nobody was told anything
        script.check()
    assert calls > 3 * COMMITS


@pytest.mark.parametrize(
    ("what", "lasts"),
    [
        (apsw.IOError("EIO"), False),
        pytest.param(apsw.FullError("ENOSPC"), False, marks=pytest.mark.rest),
        (apsw.FullError("ENOSPC"), True),
    ],
    ids=["EIO", "ENOSPC", "ENOSPC that stays"],
)
def test_when_any_call_fails_nothing_acknowledged_is_lost_and_nothing_refused_is_there(tmp_path, what, lasts):
    acts = frozenset({"write"}) if isinstance(what, apsw.FullError) else CHANGES
    for number, script in each_call(tmp_path, acts):
        script.run(Counted(number, what, acts, lasts=lasts))
        script.check()


@pytest.mark.parametrize("killed", [False, True])
def test_a_sync_that_fails_and_drops_its_pages_loses_nothing_that_was_acknowledged_even_when_power_fails_then(
    tmp_path, killed
):
    """After such a failure the kernel calls the pages clean: a later sync says yes and writes nothing of them."""
    syncs = frozenset({"sync"})
    for number, script in each_call(tmp_path, syncs):
        script.run(Counted(number, PagesDropped(), syncs), killed=killed)
        # The next daemon goes on with what the page cache shows, and acknowledges more.
        script.is_broken = False
        mount = script.disk.mount()
        writer = make_spec(script.disk.folder, vfs=mount.mount_name, synchronous="FULL").writer()
        script.told = list(keys(writer.tx))
        script._commit(writer, "later")
        mount.dead = True
        with_close(writer)
        script.disk.lose_power()
        script.maybe += script.refused
        script.check()


def test_all_of_a_long_log_is_written_anew_at_a_start(tmp_path):
    script = Script(tmp_path)
    mount = script.disk.mount()
    writer = make_spec(tmp_path, vfs=mount.mount_name, synchronous="FULL").writer()
    for number in range(100):
        script._commit(writer, f"{number}{WIDE}")
    mount.dead = True
    with_close(writer)
    log = tmp_path / "pwf.db-wal"
    assert log.stat().st_size > 1_200_000
    image = script.disk.image(str(log))
    assert image is not None
    image.durable[:] = bytes(len(image.durable))
    later = script.disk.mount()
    writer = make_spec(tmp_path, vfs=later.mount_name, synchronous="FULL").writer()
    assert bytes(image.durable) == log.read_bytes()
    writer.close()


@pytest.mark.rest
def test_after_a_dropped_sync_power_may_fail_at_any_call_of_the_next_daemon_and_leaves_no_half(tmp_path):
    """Its checkpoint must not write what the WAL does not surely have."""
    count = 0
    for dropped in range(1, 4):
        calls = 1
        while calls:
            folder = tmp_path / f"{dropped}-{calls}"
            folder.mkdir()
            script = Script(folder, calls)
            script.run(Counted(dropped, PagesDropped(), frozenset({"sync"})), killed=True)
            maybe = [*script.told, *script.maybe]
            script.told, script.maybe, script.is_broken = [], maybe, False
            fail = Counted(calls, PowerFails(), CHANGES)
            script.run(fail)
            script.disk.lose_power()
            script.maybe += script.refused
            script.check()
            count += 1
            calls = calls + 1 if fail.calls >= calls else 0
    assert count > 3 * COMMITS


def test_when_any_read_fails_the_store_says_so_or_goes_on_and_what_was_acknowledged_is_there(tmp_path):
    reads = frozenset({"read"})
    for number, script in each_call(tmp_path, reads):
        script.run(Counted(number, apsw.IOError("EIO"), reads))
        script.check()


def test_when_any_read_comes_short_the_store_says_so_or_goes_on_and_what_was_acknowledged_is_there(tmp_path):
    reads = frozenset({"read"})
    for number, script in each_call(tmp_path, reads):
        script.run(Counted(number, ShortRead(), reads))
        script.check()


@pytest.mark.parametrize("chance", range(20))
def test_the_entry_of_a_new_file_may_be_lost_until_its_first_sync(tmp_path, chance):
    disk = Disk(tmp_path, random.Random(chance))
    mount = disk.mount()
    connection = apsw.Connection(str(tmp_path / "pwf.db"), vfs=mount.mount_name)
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "OFF")
    connection.execute("CREATE TABLE t(n)")
    mount.dead = True
    connection.close()
    disk.lose_power()
    assert all(Path(path).exists() for path in disk.images)
    later = disk.mount()
    again = apsw.Connection(str(tmp_path / "pwf.db"), vfs=later.mount_name)
    assert again.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_store_that_lost_its_first_entry_is_refused_or_made_anew(tmp_path):
    """Nothing was acknowledged from it, so nothing is lost."""
    script = Script(tmp_path)
    script.disk.lose_power()
    try:
        assert script.after() == []
    except StoreRefused:
        pytest.fail("a fresh database opens after a power loss")
