"""What the tests of ready-made effects share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files and folders that this process has synced, in order."""
    known: list[Path] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        known.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    return known
