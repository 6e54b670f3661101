"""A new file is made where nobody else can reach it, and only what was written there gets its name."""

import os
import stat

import pytest

from pwf.errors import Conflict
from pwf.store.new_file import NAME, NewFile


@pytest.fixture
def shared(tmp_path):
    """A folder in which everybody may rename everything."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def write(new):
    connection = new.open()
    connection.execute("CREATE TABLE t(a)").fetchall()
    connection.close()


def own_folder(shared):
    (found,) = [path for path in shared.iterdir() if path.name.startswith(".pwf-new-")]
    return found


def swap(shared, content=b""):
    """What somebody else can do there: another folder in the place of ours, with a file of the same name."""
    ours = own_folder(shared)
    kept = ours.rename(shared / "taken")
    ours.mkdir()
    (ours / NAME).write_bytes(content)
    return kept, ours


def test_the_file_and_its_folder_are_private_whatever_the_umask(shared):
    old = os.umask(0)
    try:
        with NewFile(shared / "x.db") as new:
            assert stat.S_IMODE(own_folder(shared).stat().st_mode) == 0o700
            write(new)
            assert os.listdir(own_folder(shared)) == [NAME]
            size = new.finish()
    finally:
        os.umask(old)
    assert os.listdir(shared) == ["x.db"]
    facts = (shared / "x.db").stat()
    assert (stat.S_IMODE(facts.st_mode), facts.st_size, facts.st_nlink) == (0o600, size, 1)


def test_a_file_that_is_given_up_leaves_nothing(shared):
    with pytest.raises(KeyboardInterrupt), NewFile(shared / "x.db") as new:
        write(new)
        raise KeyboardInterrupt
    assert os.listdir(shared) == []


def test_nothing_is_written_to_a_file_that_somebody_put_in_the_place_of_ours(shared):
    with NewFile(shared / "x.db") as new:
        _, theirs = swap(shared)
        with pytest.raises(Conflict, match="somebody else changes"):
            new.open()
    assert (theirs / NAME).read_bytes() == b""
    assert not (shared / "x.db").exists()


def test_what_gets_the_name_is_what_was_written_whoever_swaps_the_folder_meanwhile(shared):
    with NewFile(shared / "x.db") as new:
        write(new)
        _, theirs = swap(shared, b"theirs")
        new.finish()
    assert (shared / "x.db").read_bytes().startswith(b"SQLite format 3")
    assert (theirs / NAME).read_bytes() == b"theirs"  # nothing is removed that was not made here


@pytest.mark.parametrize("links", [True, False])
def test_a_name_that_somebody_takes_meanwhile_is_never_replaced(shared, monkeypatch, links):
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    with NewFile(shared / "x.db") as new:
        write(new)
        (shared / "x.db").symlink_to("/etc/hostname")
        with pytest.raises(FileExistsError):
            new.finish()
    assert os.readlink(shared / "x.db") == "/etc/hostname"


def no_links(*_, **__):
    raise OSError(1, "Operation not permitted")


def test_where_there_are_no_hard_links_it_is_renamed(shared, monkeypatch):
    monkeypatch.setattr(os, "link", no_links)
    with NewFile(shared / "x.db") as new:
        write(new)
        new.finish()
    assert (shared / "x.db").read_bytes().startswith(b"SQLite format 3")
    assert os.listdir(shared) == ["x.db"]


def test_descriptors_are_given_back(shared):
    before = len(os.listdir("/dev/fd"))
    for number in range(3):
        with NewFile(shared / f"{number}.db") as new:
            write(new)
            new.finish()
    with pytest.raises(FileNotFoundError), NewFile(shared / "nowhere" / "x.db"):
        pass
    assert len(os.listdir("/dev/fd")) == before
