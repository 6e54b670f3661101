"""A disk that is really full (S2): a small file system in memory, where this machine lets us make one."""

import os
import subprocess
import sys

import pytest

from pwf.store.ballast import BALLAST_BYTES, Ballast
from pwf.store.batch import Job
from tests.store.support import Warnings, do, keys, make_spec, put, run

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="making a file system needs root on Linux"
)


@pytest.fixture
def small_disk(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("this machine does not let us make a file system")
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


def put_20_kb(tx, key):
    tx.run("INSERT INTO meta (key, value) VALUES (:key, :value)", {"key": key, "value": "x" * 20_000})


def test_a_full_disk_loses_nothing_serves_reads_and_small_writes_and_recovers_by_itself(small_disk):
    warnings = Warnings()
    writer = make_spec(
        small_disk, synchronous="FULL", ballast=Ballast(small_disk / "ballast"), warn=warnings
    ).writer()
    assert do(writer, put, "first") == "first"
    filler = small_disk / "filler"
    space = os.statvfs(small_disk)
    filler.write_bytes(b"z" * (space.f_bavail * space.f_frsize - 200_000))

    # given: commands write until the disk is full
    written = ["first"]
    for number in range(100):
        names = [f"{number:03}-{part}" for part in range(4)]
        batch = writer.run([Job(put_20_kb, name) for name in names])
        written += [name for name, answer in zip(names, batch.answers, strict=True) if answer.error is None]
        assert batch.broken is None
        if batch.disk_full:
            break

    # then: it is said once, the ballast made room, and what can't wait is still written
    assert writer.tx.disk_full
    assert warnings.events.count("store.disk_full") == 1
    assert not (small_disk / "ballast").exists()
    assert [answer.error for answer in run(writer, (put, "cancel"), (put, "outcome"))] == [None, None]
    assert do(writer, keys) == sorted([*written, "cancel", "outcome"])
    assert do(writer, lambda tx, _: tx.one("PRAGMA integrity_check")) == ("ok",)
    assert not writer.rebuild_ballast()

    # and when space is freed it goes on without a restart
    filler.unlink()
    assert writer.rebuild_ballast()
    assert not writer.tx.disk_full
    assert (small_disk / "ballast").stat().st_size == BALLAST_BYTES
    assert do(writer, put, "last") == "last"
    writer.close()


def test_a_disk_that_is_full_to_the_last_byte_answers_disk_full_and_keeps_what_was_committed(small_disk):
    writer = make_spec(small_disk, synchronous="FULL", ballast=Ballast(small_disk / "ballast")).writer()
    space = os.statvfs(small_disk)
    (small_disk / "filler").write_bytes(b"z" * (space.f_bavail * space.f_frsize - 200_000))
    written, refused = [], 0
    for number in range(1500):
        (answer,) = run(writer, (put_20_kb, f"{number:04}"))
        if answer.error is None:
            written.append(f"{number:04}")
        else:
            assert answer.error.code == "disk_full"
            refused += 1
    assert refused > 0
    assert do(writer, keys) == written
    writer.close()
    os.unlink(small_disk / "filler")
    again = make_spec(small_disk).writer()
    assert do(again, keys) == written
    again.close()
