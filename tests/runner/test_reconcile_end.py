"""What a reconciling process says when its manager's function fails: why, and what was told in the history before."""

from __future__ import annotations

from typing import Any

import pytest

from pwf.errors import EffectUnknown, InvalidValue
from pwf.protocol.reconcile import Reconciled
from pwf.protocol.runner import Value
from pwf.runner.reconcile import _reconcile
from pwf.workflow.resource_manager import ResourceManager
from tests.workflow.author import inline
from tests.workflow.manager_author import FakePort, given


class Port(FakePort):
    """A daemon that also gives values."""

    def fetch(self, found: Value, what: str) -> bytes:
        return inline(found)


def failing(error: BaseException) -> Reconciled:
    manager: ResourceManager[Any, Any] = ResourceManager("sample", spec=dict, status=dict)

    @manager.reconcile
    def look(ctx: Any, resource: Any) -> Any:
        ctx.event("Found", "something", n=1)
        raise error

    return _reconcile(given(), manager, Port())  # type: ignore[arg-type]


def test_what_was_told_before_a_failure_is_said_with_it() -> None:
    said = failing(ValueError("broken"))
    assert said.error is not None
    assert (said.outcome, said.error.code) == ("failed", "node_failed")
    assert [(one.reason, one.message) for one in said.events] == [("Found", "something")]


@pytest.mark.parametrize(
    "error",
    [
        EffectUnknown("nobody knows"),
        ExceptionGroup("", [EffectUnknown("nobody knows")]),
        BaseExceptionGroup("", [KeyboardInterrupt(), ExceptionGroup("", [EffectUnknown("nobody knows")])]),
        ExceptionGroup("", [ValueError("and more"), EffectUnknown("nobody knows")]),
    ],
)
def test_an_effect_that_nobody_can_tell_about_is_said_to_be_ambiguous_also_out_of_a_nursery(
    error: BaseException,
) -> None:
    said = failing(error)
    assert said.error is not None
    assert (said.error.code, said.error.message, len(said.events)) == ("effect_ambiguous", "nobody knows", 1)


def test_any_other_error_has_its_own_code() -> None:
    said = failing(InvalidValue("no"))
    assert said.error is not None
    assert said.error.code == "invalid_value"
