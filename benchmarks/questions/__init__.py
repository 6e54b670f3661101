"""The questions that the benchmarks answer, one file each: `measure(bench)` gives the rows.

The first line of a file's docstring is the question as people read it.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

from benchmarks.session import Measure

#: In the order in which they are measured: what others are read against, then what matters most.
NAMES = (
    "limits",
    "start_to_finish",
    "durable_steps",
    "included",
    "kept",
    "effect_steps",
    "headless",
    "accepting",
    "admissions",
    "group_commit",
    "slow_disk",
    "recovery",
    "reconciles",
    "sessions",
    "decisions",
    "memory",
    "value_size",
    "fan_out",
    "store_growth",
    "cli_start",
    "commands",
    "many_ended",
    "retention",
)


def measure_of(name: str) -> Measure:
    """The question's function. Imported when it is asked for."""
    measure: Measure = importlib.import_module(f"benchmarks.questions.{name}").measure
    return measure


def text_of(name: str) -> str:
    """The question in words. Only read, so that asking for help imports none of them."""
    doc = ast.get_docstring(ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")))
    return (doc or name).split("\n\n")[0].replace("\n", " ")
