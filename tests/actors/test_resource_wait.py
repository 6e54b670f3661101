"""Waiting for a managed resource: where it ends."""

from __future__ import annotations

from typing import Any

import pytest

from pwf.actors.operations.resources import has_arrived
from pwf.protocol.resources import ResourceSummary


def summary(state: Any, **more: Any) -> ResourceSummary:
    facts: dict[str, Any] = {"uid": "u1", "manager": "disk", "key": "a", "root": "/p", "ready": "True"}
    facts |= {"resource_version": 7, "generation": 2, "observed_generation": 2, "created_ms": 1}
    return ResourceSummary(**{**facts, "state": state, **more})


@pytest.mark.parametrize("until", ["settled", "gone"])
@pytest.mark.parametrize("state", ["paused", "held", "ambiguous", "gone"])
def test_every_wait_ends_where_a_person_is_needed_or_nothing_is_left(until: str, state: str) -> None:
    assert has_arrived(summary(state), until)


@pytest.mark.parametrize("until", ["settled", "gone"])
@pytest.mark.parametrize("state", ["queued", "reconciling"])
def test_what_goes_on_is_waited_for(until: str, state: str) -> None:
    assert not has_arrived(summary(state), until)


def test_one_that_is_settled_is_waited_for_until_it_is_gone_if_that_was_asked_for() -> None:
    assert has_arrived(summary("settled"), "settled")
    assert not has_arrived(summary("settled"), "gone")
    assert not has_arrived(summary("settled", observed_generation=1), "settled")
    assert not has_arrived(summary("settled", deleting_ms=5), "settled")
