"""The small parts of the daemon: crash-loop guard, clock watch, claim renewal."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import trio
import trio.testing

from pwf.actors.base.supervise import (
    LOOP_DEATHS,
    LOOP_DEATHS_SUSPECTED,
    SOON_MS,
    Deaths,
    cause_of,
    log_last_words,
)
from pwf.actors.claim.lock_file import LockFile
from pwf.actors.claim.server_claim import GIVE_UP_S_MAX, RETRY_S, Claim, LiveLeases, ServerClaim
from pwf.actors.operations.caller import Caller
from pwf.actors.operations.dispatch import HANDLERS, Operations, outcome_of
from pwf.actors.operations.services import receipt_key, scope_key
from pwf.actors.operations.views import SHOWN
from pwf.actors.runs.clock_watch import STEP_MS, TICK_S, ClockWatch, moved
from pwf.clock import Now
from pwf.errors import (
    Ambiguous,
    ClaimLost,
    Conflict,
    InvalidInput,
    NotFound,
    OutcomeUnknown,
    PwfError,
    Rejected,
    StoreBroken,
    Unavailable,
)
from pwf.host.clock_steps import open_clock_steps
from pwf.protocol.frames import Request
from pwf.protocol.lock_record import LockRecord
from pwf.protocol.operations import OPERATIONS, VIEWS, ViewName
from pwf.store.daemon import Release
from pwf.store.receipts import ReceiptKey
from tests.actors.no_log import NoLog


class Clock:
    """Time that the test sets."""

    def __init__(self) -> None:
        self.present = Now(wall_ms=1_000_000, elapsed_ms=50_000, awake_ms=40_000, boot_id="b")

    def now(self) -> Now:
        return self.present

    def go(self, ms: int, *, slept_ms: int = 0, stepped_ms: int = 0) -> None:
        at = self.present
        self.present = Now(
            at.wall_ms + ms + slept_ms + stepped_ms,
            at.elapsed_ms + ms + slept_ms,
            at.awake_ms + ms,
            at.boot_id,
        )


# --- crash loop -------------------------------------------------------------------------------------------


def fail(kind: type[Exception], text: str) -> Exception:
    try:
        raise kind(text)
    except kind as error:
        return ExceptionGroup("from a nursery", [error])


def die(home: Path, error: Exception, lived_ms: int = 10) -> None:
    clock = Clock()
    deaths = Deaths(home, clock)
    clock.go(lived_ms)
    deaths.note(error)


def test_the_same_death_three_times_in_a_row_degrades_the_next_start(tmp_path: Path) -> None:
    for number in range(LOOP_DEATHS):
        assert Deaths(tmp_path, Clock()).why_degraded() is None
        die(tmp_path, fail(KeyError, f"another text each time: {number}"))
    assert "KeyError" in (Deaths(tmp_path, Clock()).why_degraded() or "")


def test_while_a_run_is_suspected_the_row_of_deaths_may_be_as_long_as_it_takes_to_hold_that_run(
    tmp_path: Path,
) -> None:
    for _ in range(LOOP_DEATHS_SUSPECTED):
        assert Deaths(tmp_path, Clock()).why_degraded(suspected=True) is None
        die(tmp_path, fail(KeyError, ""))
    assert "KeyError" in (Deaths(tmp_path, Clock()).why_degraded(suspected=True) or "")


def test_who_died_of_an_error_last_is_known_by_its_pid(tmp_path: Path) -> None:
    assert not Deaths(tmp_path, Clock()).has(os.getpid())
    die(tmp_path, fail(KeyError, ""))
    assert Deaths(tmp_path, Clock()).has(os.getpid())
    assert not Deaths(tmp_path, Clock()).has(os.getpid() + 1)


@pytest.mark.parametrize(
    ("said", "crashed"),
    [
        ("Fatal Python error: Segmentation fault\n\nThread 0x0", True),
        ("a warning of a library\n", False),
        ("", False),
    ],
)
def test_the_last_words_of_a_crashed_interpreter_are_known_as_that(
    tmp_path: Path, said: str, crashed: bool
) -> None:
    path = tmp_path / "daemon.err"
    path.write_text(said)
    log = NoLog()
    assert log_last_words(path, log) is crashed
    assert path.read_bytes() == b""
    assert [name for name, _ in log.events] == (["daemon.last_words"] if said else [])


def test_different_deaths_or_late_ones_are_no_loop(tmp_path: Path) -> None:
    for error in (KeyError, KeyError, ValueError):
        die(tmp_path, fail(error, ""))
    assert Deaths(tmp_path, Clock()).why_degraded() is None
    for lived_ms in (5, SOON_MS, 5):
        die(tmp_path, fail(OSError, ""), lived_ms)
    assert Deaths(tmp_path, Clock()).why_degraded() is None


def test_an_ordered_stop_ends_the_row(tmp_path: Path) -> None:
    for _ in range(LOOP_DEATHS):
        die(tmp_path, fail(KeyError, ""))
    Deaths(tmp_path, Clock()).forget()
    assert Deaths(tmp_path, Clock()).why_degraded() is None


@pytest.mark.trio
async def test_a_daemon_that_lives_long_and_is_then_killed_ends_the_row(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    die(tmp_path, fail(KeyError, ""))
    die(tmp_path, fail(KeyError, ""))
    with trio.move_on_after(SOON_MS / 1_000 + 1):  # and then SIGKILL, or the power is cut
        await Deaths(tmp_path, Clock()).outlive()
    die(tmp_path, fail(KeyError, ""))
    assert Deaths(tmp_path, Clock()).why_degraded() is None


def test_a_record_that_is_rubbish_guards_nothing_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "deaths.json").write_text("{]")
    assert Deaths(tmp_path, Clock()).why_degraded() is None
    Deaths(tmp_path / "nowhere", Clock()).note(KeyError())


def test_a_cause_names_kind_and_place_but_no_data() -> None:
    assert "secret" not in cause_of(fail(KeyError, "secret"))
    assert "fail" in cause_of(fail(KeyError, ""))
    assert cause_of(Unavailable("x")) == "unavailable"


# --- clocks -----------------------------------------------------------------------------------------------


def test_steps_and_sleep_are_told_apart() -> None:
    clock = Clock()
    before = clock.now()
    clock.go(1_000, slept_ms=60_000, stepped_ms=-86_400_000)
    assert moved(before, clock.now()) == (-86_400_000, 60_000)


@pytest.mark.trio
async def test_a_step_is_noticed_by_the_tick_where_the_kernel_does_not_tell(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.actors.runs.clock_watch.open_clock_steps", lambda: None)
    clock, woken = Clock(), []
    watch = ClockWatch(clock, (lambda: woken.append(trio.current_time()),), NoLog())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.run)
        await trio.sleep(TICK_S * 2.5)
        clock.go(int(TICK_S * 2500), stepped_ms=STEP_MS - 1)
        await trio.sleep(TICK_S * 2)
        assert woken == []
        clock.go(5_000, stepped_ms=3_600_000)
        await trio.sleep(TICK_S)
        assert len(woken) == 1
        clock.go(5_000, slept_ms=3_600_000)
        await trio.sleep(TICK_S)
        assert len(woken) == 2
        nursery.cancel_scope.cancel()


@pytest.mark.skipif(sys.platform != "linux", reason="timerfd is Linux's")
def test_the_kernels_notifier_can_be_armed_and_is_silent_while_nothing_happens() -> None:
    steps = open_clock_steps()
    assert steps is not None
    steps.take()  # nothing there: it would have blocked or failed
    steps.close()


# --- the claim --------------------------------------------------------------------------------------------


class Store:
    """Takes renewals, or fails as it is told."""

    def __init__(self) -> None:
        self.commands: list[Any] = []
        self.error: Exception | None = None
        self.rescued: Path | None = None

    async def rescue(self, target: Path) -> bool:
        self.rescued = target
        return True

    async def write(self, handler: object, command: object) -> None:
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        self.commands.append(command)


class Lock(LockFile):
    def __init__(self) -> None:
        self.records: list[LockRecord] = []

    def write(self, record: LockRecord) -> None:
        self.records.append(record)


class Files:
    """The database's; `gone`: they are not those any more that were opened."""

    gone = False

    def check(self) -> None:
        if self.gone:
            raise StoreBroken("pwf.db was deleted", hint="pwf state restore FILE")

    def rescue_to(self, epoch: int) -> Path:
        return Path(f"/rescued-{epoch}")


def server_claim(
    store: Store,
    lock: Lock,
    live: LiveLeases = list,
    log: NoLog | None = None,
    files: Files | None = None,
) -> ServerClaim:
    return ServerClaim(
        store,
        lock,
        LockRecord(pid=1, socket="s"),
        Claim(token="t", epoch=7, home_id="h"),
        live_leases=live,
        files=files or Files(),
        clock=Clock(),
        lease_s=30,
        renew_s=10,
        log=log or NoLog(),
    )


@pytest.mark.trio
async def test_one_renewal_carries_the_runs_that_are_supervised_at_that_moment(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, lock = Store(), Lock()
    live = [("a", 1, "x")]
    actor = server_claim(store, lock, lambda: list(live))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        await trio.sleep(15)
        live.clear()
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
    assert [command.live for command in store.commands] == [[("a", 1, "x")], []]
    assert {record.epoch for record in lock.records} == {7}


@pytest.mark.trio
async def test_a_store_that_can_not_write_is_tried_again_soon_and_logged_once(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store = Store()
    log = NoLog()
    actor = server_claim(store, Lock(), log=log)
    store.error = Unavailable()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        await trio.sleep(15)
        store.error = None
        await trio.sleep(RETRY_S * 2)
        nursery.cancel_scope.cancel()
    assert [event for event, _ in log.events] == ["claim.renewal_failed"]
    assert len(store.commands) == 1


@pytest.mark.trio
async def test_a_lost_claim_ends_the_actor(autojump_clock: trio.testing.MockClock) -> None:
    store = Store()
    store.error = ClaimLost()
    with pytest.raises(ClaimLost):
        await server_claim(store, Lock()).run()


@pytest.mark.trio
async def test_a_database_that_is_gone_is_noticed_at_the_next_renewal_and_at_the_end_and_said(
    autojump_clock: trio.testing.MockClock,
) -> None:
    store, log, files = Store(), NoLog(), Files()
    files.gone = True
    with pytest.raises(StoreBroken) as caught:
        await server_claim(store, Lock(), log=log, files=files).run()
    assert caught.value.hint == "what it had was rescued: pwf state restore /rescued-7"
    assert store.rescued == Path("/rescued-7")
    assert trio.current_time() <= 11
    assert store.commands == []
    actor = server_claim(store, Lock(), log=log, files=files)
    with pytest.RaisesGroup(StoreBroken, allow_unwrapped=True, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(actor.run)
            await actor.handle.give_up()
    assert [event for event, _ in log.events] == ["claim.database_gone"] * 2


@pytest.mark.trio
@pytest.mark.parametrize("error", [None, Unavailable()])
async def test_a_claim_that_is_given_up_renews_no_more_and_its_lock_names_nobody(
    autojump_clock: trio.testing.MockClock, error: Exception | None
) -> None:
    store, lock = Store(), Lock()
    actor = server_claim(store, lock)
    store.error = error
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        await trio.sleep(1)
        with trio.fail_after(GIVE_UP_S_MAX):
            await actor.handle.give_up()
        assert (lock.records[-1].pid, lock.records[-1].epoch) == (0, 7)
        await trio.sleep(60)
    assert [type(command) for command in store.commands] == ([] if error else [Release])
    assert lock.records[-1].pid == 0
    with pytest.raises(Unavailable):
        await actor.handle.give_up()


# --- operations -------------------------------------------------------------------------------------------


def test_every_operation_of_the_protocol_has_a_handler() -> None:
    assert HANDLERS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (NotFound(), "not_found"),
        (Ambiguous(), "rejected"),
        (Conflict(), "conflict"),
        (Rejected(), "rejected"),
        (ClaimLost(), "claim_lost"),
        (OutcomeUnknown(), "unavailable"),
        (StoreBroken(), "unavailable"),
        (InvalidInput(), "rejected"),
    ],
)
def test_each_error_has_one_outcome(error: PwfError, outcome: str) -> None:
    assert outcome_of(error) == outcome


def request(**more: Any) -> Request:
    fields: dict[str, Any] = {"request_id": "1", "client_id": "c", "operation": "run.pause", **more}
    return Request(**fields)


def receipt(**more: Any) -> ReceiptKey:
    return receipt_key(request(**more), scope_key(request(**more)))


def test_a_receipt_knows_a_repeat_by_its_key_and_another_command_by_its_payload() -> None:
    first = receipt(idempotency_key="k", run_id="a", payload=msgspec.Raw(b'{"now": true}'))
    again = receipt(idempotency_key="k", run_id="a", payload=msgspec.Raw(b'{"now":true}'), request_id="2")
    other = receipt(idempotency_key="k", run_id="b", payload=msgspec.Raw(b'{"now":true}'))
    assert first == again
    assert first.scope_key == other.scope_key
    assert first.payload_digest != other.payload_digest


def test_without_a_key_a_repeat_is_known_by_client_and_request_id() -> None:
    assert scope_key(request()) != scope_key(request(request_id="2"))
    assert scope_key(request()) != scope_key(request(client_id="d"))


def test_receipts_of_different_commands_never_share_a_scope_wherever_colons_stand() -> None:
    by_request = [("a:b", "c"), ("a", "b:c"), ("", "a:b:c")]
    asked = [request(client_id=client, request_id=number) for client, number in by_request]
    by_session = [("s", "key:x"), ("s:key", "x"), ("1:s", "key:x")]
    scopes = [scope_key(one) for one in asked]
    scopes += [scope_key(request(idempotency_key=key), session) for session, key in by_session]
    scopes.append(scope_key(request(idempotency_key="session:1:s:key:k")))
    assert len(set(scopes)) == len(scopes)


@pytest.mark.trio
@pytest.mark.parametrize("operation", sorted(name for name, one in OPERATIONS.items() if not one.guarded))
async def test_an_operation_that_does_not_look_at_expected_revision_refuses_one(operation: str) -> None:
    nothing: Any = None
    asked = request(operation=operation, run_id="r", expected_revision=3)
    answer = await Operations(nothing).handle(asked, Caller(1, nothing))
    assert answer.outcome == "rejected"
    assert answer.error is not None
    assert "takes no expected_revision" in answer.error.message


@pytest.mark.parametrize("key", ["k", None])
def test_what_acts_for_a_session_has_keys_of_its_own(key: str | None) -> None:
    asked = request(idempotency_key=key)
    assert len({scope_key(asked), scope_key(asked, "s1"), scope_key(asked, "s2")}) == 3
    assert scope_key(asked, "s1") == scope_key(asked, "s1")


def test_every_view_says_how_it_is_read() -> None:
    assert SHOWN.keys() == VIEWS.keys() == set(get_args(ViewName))
