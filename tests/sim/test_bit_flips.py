"""A bit that flips on the disk is detected or harmless: a larger value is read as it was, or not at all."""

from __future__ import annotations

import random

import apsw
import pytest

from pwf.errors import PwfError
from pwf.store.database import open_reader
from pwf.store.tx import Tx
from pwf.store.values import load_content, store_content
from tests.store.support import do, make_spec

FLIPS = 150
VALUES = [random.Random(number).randbytes(20_000 + number) for number in range(4)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The bytes of a database with values, and their names."""
    folder = tmp_path_factory.mktemp("sound")
    writer = make_spec(folder).writer()
    names = [do(writer, store_content, data) for data in VALUES]
    writer.close()
    return (folder / "pwf.db").read_bytes(), names


def read(path, name, spec):
    """The value; None when the store says that it can not be read."""
    try:
        connection = open_reader(path)
    except (PwfError, apsw.Error):
        return None
    try:
        return load_content(Tx(connection, now=spec.clock.now(), ids=spec.ids), name)
    except (PwfError, apsw.Error):
        return None
    finally:
        connection.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_flipped_bit_gives_no_wrong_value(sound, tmp_path, seed):
    data, names = sound
    chance = random.Random(seed)
    path, spec = tmp_path / "pwf.db", make_spec(tmp_path)
    detected = 0
    for _ in range(FLIPS // 4):
        flipped = bytearray(data)
        flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        path.chmod(0o600)
        found = [read(path, name, spec) for name in names]
        assert all(one in (None, value) for one, value in zip(found, VALUES, strict=True))
        detected += None in found
    assert detected > 0, "some flips hit a value"
