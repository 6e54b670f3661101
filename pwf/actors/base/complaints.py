"""What a process that the daemon keeps has printed on stderr: its last line most often says why it has ended."""

from __future__ import annotations

import os
from typing import BinaryIO

COMPLAINT_BYTES = 2_000


def last_line(complaints: BinaryIO, beginning: str = "") -> str:
    """The last line that is not empty, and begins so; "" when there is none."""
    end = complaints.seek(0, os.SEEK_END)
    complaints.seek(max(0, end - COMPLAINT_BYTES))
    lines = complaints.read().decode("utf-8", "replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip() and line.startswith(beginning)), "")
