"""The public names, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pwf

PUBLIC = [
    "Budget",
    "Bullets",
    "Child",
    "Choice",
    "Chosen",
    "Condition",
    "Context",
    "Diff",
    "EffectAbandoned",
    "EffectUnknown",
    "Fields",
    "GraphError",
    "Node",
    "NotApplied",
    "NotCompleted",
    "Outcome",
    "Paragraph",
    "Preformatted",
    "Presentation",
    "PwfError",
    "ReconcileContext",
    "Resource",
    "ResourceManager",
    "Result",
    "Retry",
    "Section",
    "ShellResult",
    "Text",
    "Waited",
    "Workflow",
    "__version__",
    "applied",
    "assistant_message",
    "days",
    "hours",
    "idempotent",
    "manual",
    "minutes",
    "not_applied",
    "parts",
    "run_asyncio",
    "seconds",
    "unknown",
]


def test_the_public_names_are_these() -> None:
    assert sorted(pwf.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(pwf))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_had_and_says_what_it_is(name: str) -> None:
    found = getattr(pwf, name)
    if name != "__version__":
        assert found.__doc__
        assert found.__module__.startswith("pwf.")
        assert found.__name__ == name


def test_another_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Workfow'"):
        pwf.Workfow  # noqa: B018


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


def test_importing_pwf_loads_no_library() -> None:
    loaded = _modules_after("import pwf")
    assert not loaded & {"trio", "anyio", "msgspec", "asyncio", "typing", "importlib.metadata", "pwf.errors"}


def test_writing_a_workflow_loads_neither_trio_nor_anyio_nor_the_store() -> None:
    loaded = _modules_after(
        "from pwf import *\nflow = Workflow('x')\n@flow.compute\ndef x(ctx) -> int: ...\nflow.to_graph()"
    )
    assert "msgspec" in loaded
    assert not loaded & {"trio", "anyio", "apsw", "jsonschema_rs", "pwf.store", "pwf.actors", "pwf.runner"}
