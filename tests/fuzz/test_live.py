"""A sample of the campaign against a live daemon (`make fuzz` has the whole)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.live import campaign, check

SECONDS = 8.0


@pytest.mark.rest
def test_whatever_clients_send_the_daemon_answers_and_its_loop_goes_on(tmp_path: Path) -> None:
    seen = campaign(tmp_path, seconds=SECONDS)
    assert {"accepted", "rejected"} <= set(seen.outcomes)
    check(seen)
