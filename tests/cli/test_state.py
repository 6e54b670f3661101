"""`pwf state backup`, `restore` and `prune`: what is asked, what is said."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pwf.cli import exits
from pwf.cli.typed import past_ms
from pwf.errors import Conflict, PwfError, StateFull
from pwf.protocol import operations as ops
from pwf.protocol.views import Violation
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon

NOW = 1_800_000_000_000
DAY_MS = 24 * 3_600_000


def asked(daemon: FakeDaemon, operation: str, kind: type[Any]) -> Any:
    return msgspec.json.decode(daemon.of(operation)[-1].payload, type=kind)


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("30d", NOW - 30 * DAY_MS),
        ("1h30m", NOW - 5_400_000),
        ("0s", NOW),
        ("2024-01-31T08:00:00+02:00", 1_706_680_800_000),
        ("2024-01-31", int(datetime(2024, 1, 31).timestamp() * 1000)),
    ],
)
def test_a_moment_that_has_passed_is_a_date_or_a_distance_back(typed: str, wanted: int) -> None:
    assert past_ms(typed, NOW, "--before", print) == wanted


@pytest.mark.parametrize("typed", ["", "soon", "30", "-3d", "2999-01-01", "99999999999d"])
def test_anything_else_is_one_error_with_what_to_type(typed: str) -> None:
    with pytest.raises(PwfError) as caught:
        past_ms(typed, NOW, "--before", print)
    assert "--before" in caught.value.message
    assert caught.value.hint


def backed_up(**changes: Any) -> ops.BackupResult:
    facts = {"path": "/b/x.db", "bytes": 4_096_000, "runs": 12, "at_ms": NOW, "home_id": "h", "epoch": 3}
    return ops.BackupResult(**{**facts, **changes})


def test_backup_sends_an_absolute_path_and_says_what_it_made(
    pwf: Pwf, daemon: FakeDaemon, tmp_path: Path
) -> None:
    daemon.on("state.backup", lambda request, payload: backed_up())
    result = pwf("state", "backup", "x.db")
    assert result.code == exits.OK
    assert "/b/x.db  (3.9 MiB, 12 runs, verified)" in result.out
    assert asked(daemon, "state.backup", ops.BackupPayload).path == str(tmp_path.resolve() / "x.db")


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_backup_of_what_is_damaged_is_made_and_named_and_ends_with_1(
    pwf: Pwf, daemon: FakeDaemon, words: tuple[str, ...]
) -> None:
    broken = Violation(
        rule="value_damaged", message="no chunk\x1b", run_id="k3", fix="pwf state restore FILE"
    )
    daemon.on("state.backup", lambda request, payload: backed_up(violations=(broken,)))
    result = pwf("state", "backup", "x.db", *words)
    assert result.code == exits.NO
    if words:
        assert result.json["violations"][0]["run_id"] == "k3"
    else:
        assert "verified" not in result.out
        assert "value_damaged  run k3: no chunk\\x1b" in result.err
        assert "fix: pwf state restore FILE" in result.err


def test_a_backup_that_would_replace_a_file_is_refused(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("state.backup", lambda request, payload: Conflict("/b/x.db exists", hint="name a new file"))
    assert pwf("state", "backup", "x.db").code == exits.REFUSED


def test_prune_says_what_went_and_what_stays_and_why(pwf: Pwf, daemon: FakeDaemon) -> None:
    def pruned(request: Any, payload: ops.PrunePayload) -> ops.PruneResult:
        return ops.PruneResult(
            before_ms=payload.before_ms,
            dry_run=payload.dry_run,
            trees=1_200,
            runs=1_300,
            kept={"an effect is unsettled": 2},
            values=7,
            freed_bytes=3 * 1024 * 1024,
        )

    daemon.on("state.prune", pruned)
    done = pwf("state", "prune", "--before", "30d").out
    for part in ("removed 1,300 runs in 1,200 trees", "kept 2 runs: an effect is unsettled", "3.0 MiB"):
        assert part in done
    planned = pwf("state", "prune", "--before", "30d", "--dry-run").out
    assert "would remove 1,300 runs" in planned
    assert "gave back" not in planned
    assert asked(daemon, "state.prune", ops.PrunePayload).dry_run
    assert pwf("state", "prune", "--before", "30d", "--json").json["trees"] == 1_200


def test_prune_needs_to_be_told_before_when(pwf: Pwf) -> None:
    result = pwf("state", "prune")
    assert result.code == exits.USAGE
    assert "--before" in result.err


def test_restore_asks_no_daemon(pwf: Pwf, daemon: FakeDaemon, tmp_path: Path) -> None:
    result = pwf("state", "restore", "nothing.db")
    assert result.code == exits.UNSOUND
    assert str(tmp_path.resolve() / "nothing.db") in result.err
    assert daemon.requests == []


def test_a_start_above_the_budget_is_unavailable_with_what_to_do(pwf: Pwf, daemon: FakeDaemon) -> None:
    daemon.on("run.start", lambda request, payload: StateFull("too much", hint="pwf state prune --before 7d"))
    result = pwf("run", "hello")
    assert (result.code, result.err.splitlines()[1]) == (
        exits.UNAVAILABLE,
        "hint: pwf state prune --before 7d",
    )


def test_doctor_says_how_to_get_below_the_budget(pwf: Pwf, daemon: FakeDaemon) -> None:
    found = samples.status(problems=("the state takes 90 % of max_state_size",))
    daemon.on("daemon.status", lambda request, payload: found)
    assert "pwf state prune --before 7d" in pwf("doctor").out
