"""What the tests of a worker share."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """To look for garbage again and again among what stays takes two seconds of each worker's five to collect."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def copied_databases() -> Iterator[None]:
    """A new database is a copy of the first one that this worker made: to execute the schema takes 6 ms each time."""
    from pwf.store import database

    make, create_schema, model = database._fill, database.create_schema, b""

    def fill(path: Path, vfs: str | None) -> None:
        nonlocal model
        if vfs is not None or database.create_schema is not create_schema:  # a test has its own
            make(path, vfs)
        elif model:
            path.write_bytes(model)
        else:
            make(path, None)
            model = path.read_bytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "_fill", fill)
        yield
