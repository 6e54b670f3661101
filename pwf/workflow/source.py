"""Where something stands in the author's source, for error messages."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

DOC_LENGTH_MAX = 200

_OURS = str(Path(__file__).parent) + os.sep


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    @classmethod
    def of_function(cls, fn: Callable[..., Any], otherwise: Place) -> Place:
        """Where a function's definition begins (its first decorator); `otherwise` for a callable without
        source.
        """
        code = getattr(inspect.unwrap(fn), "__code__", None)
        return otherwise if code is None else cls(code.co_filename, code.co_firstlineno)

    @classmethod
    def of_caller(cls) -> Place:
        """The nearest line outside this package."""
        frame = author_frame()
        return cls(frame.f_code.co_filename, frame.f_lineno)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def author_frame() -> FrameType:
    """The nearest frame outside this package: the line of the author's file that called us."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame


def first_line(text: object) -> str:
    """The first line of a docstring, for lists; empty where there is none."""
    line = text.strip().split("\n", 1)[0].strip() if isinstance(text, str) else ""
    return line if len(line) <= DOC_LENGTH_MAX else line[: DOC_LENGTH_MAX - 1] + "…"
