"""Every attack is held, or says what this machine lacks for it."""

from __future__ import annotations

import pytest

from tests.attack.__main__ import attempt
from tests.attack.attack import ATTACKS, load

load()


@pytest.mark.rest
@pytest.mark.parametrize("name", sorted(ATTACKS))
def test_an_attack_is_held(name: str) -> None:
    verdict, said = attempt(ATTACKS[name])
    if verdict == "left out":
        pytest.skip(said)
    assert verdict == "held", said
