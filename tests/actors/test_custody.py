"""Which processes are a runner's, by the evidence that a scan gives; and what a proof does with them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import msgspec
import pytest
import trio

from pwf import host
from pwf.actors.processes import custody
from pwf.actors.processes.custody import Custody, CustodyHandle, Sought, suspects, without_trace
from pwf.errors import Unavailable
from pwf.host import Bearer, Identity
from pwf.protocol.runner import MARKER_VARIABLE

BOOT = "boot"
MARKER = "home:run:1"  # in scans that are made up; a real scan sees what other workers start, too
HOME = f"home{os.getpid()}"
RUNNER = Identity(pid=100, start_tick=1_000, boot_id=BOOT, session=100)


def bearer(pid: int, tick: int, session: int = 1, marker: str | None = None) -> Bearer:
    return Bearer(Identity(pid=pid, start_tick=tick, boot_id=BOOT, session=session), 1, marker)


def pids(identities: list[Identity]) -> list[int]:
    return sorted(identity.pid for identity in identities)


def test_the_runner_itself_is_its_own() -> None:
    found = suspects([bearer(100, 1_000, 100), bearer(200, 1_000)], RUNNER, MARKER, None)
    assert (pids(found.ours), found.doubtful) == ([100], [])


def test_who_bears_the_marker_is_the_runners_in_whatever_session() -> None:
    found = suspects([bearer(200, 1_200, 200, MARKER), bearer(201, 1_300, 7, MARKER)], RUNNER, MARKER, None)
    assert pids(found.ours) == [200, 201]


@pytest.mark.parametrize("other", ["home:run:2", "home:run:11", "other:run:1", "", None])
def test_who_bears_another_marker_is_not(other: str | None) -> None:
    assert suspects([bearer(200, 1_200, 200, other)], RUNNER, MARKER, None) == ([], [])


def test_the_session_is_the_runners_while_the_runner_is_there() -> None:
    found = suspects([bearer(100, 1_000, 100), bearer(200, 5_000, 100)], RUNNER, MARKER, None)
    assert pids(found.ours) == [100, 200]


def test_the_session_is_the_runners_while_a_member_is_there_from_before_its_death() -> None:
    members = [bearer(200, 1_900, 100), bearer(201, 2_500, 100)]
    assert pids(suspects(members, RUNNER, MARKER, died_tick=2_000).ours) == [200, 201]


def test_a_member_that_may_be_of_a_later_session_is_doubtful() -> None:
    members = [bearer(201, 2_500, 100)]
    for died_tick in (2_000, None):
        found = suspects(members, RUNNER, MARKER, died_tick)
        assert (found.ours, pids(found.doubtful)) == ([], [201])


def test_a_session_with_another_leader_of_the_same_number_is_a_strangers() -> None:
    strangers = [bearer(100, 3_000, 100), bearer(201, 3_500, 100)]
    assert suspects(strangers, RUNNER, MARKER, died_tick=2_000) == ([], [])
    with_bearer = [*strangers, bearer(300, 1_500, 300, MARKER)]
    assert pids(suspects(with_bearer, RUNNER, MARKER, 2_000).ours) == [300]


# --- proofs, with real processes ----------------------------------------------------------------------------


def runner_like(script: str, marker: str) -> tuple[subprocess.Popen[bytes], Identity]:
    """A process as an earlier daemon left it: its own session, its marker, and what the script starts."""
    process = subprocess.Popen(
        ["sh", "-c", script], start_new_session=True, env={**os.environ, MARKER_VARIABLE: marker}
    )
    identity = host.process_identity(process.pid)
    assert identity is not None
    return process, msgspec.structs.replace(identity, session=process.pid)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, MARKER_VARIABLE: f"{HOME}:another:1"}
    process = subprocess.Popen(["sleep", "60"], start_new_session=True, env=environment)
    yield process
    assert process.poll() is None, "a stranger was killed"
    process.kill()
    process.wait()


@pytest.fixture
async def proofs(nursery: trio.Nursery) -> CustodyHandle:
    actor = Custody()
    nursery.start_soon(actor.run)
    return actor.handle


LEFT = {
    "through two shells": "sh -c 'sh -c \"sleep 71; :\" & wait' & wait",
    "ignoring SIGTERM": "trap '' TERM HUP INT; setsid sh -c 'while :; do sleep 1; done' & wait",
    "in another session": "setsid sleep 71 & wait",
    "forking on and on": "setsid sh -c 'while :; do (sleep 0.02; sleep 70) & sleep 0.005; done' & wait",
}


@pytest.mark.trio
@pytest.mark.parametrize("name", LEFT)
async def test_what_an_earlier_daemon_left_is_ended_and_proved_dead(
    name: str, stranger: subprocess.Popen[bytes], proofs: CustodyHandle
) -> None:
    process, identity = runner_like(LEFT[name], f"{HOME}:left:3")
    await trio.sleep(0.15)
    below = host.descendants(process.pid)
    assert below
    assert await proofs.prove_dead(identity, f"{HOME}:left:3")
    assert not any(host.is_alive(one) for one in (identity, *below))
    assert process.wait(5) == -signal.SIGKILL
    left = host.find_bearers(MARKER_VARIABLE, identity.start_tick)
    assert not [bearer for bearer in left if bearer.marker == f"{HOME}:left:3"]


@pytest.mark.trio
async def test_what_a_dead_runner_left_is_found_by_its_marker(
    stranger: subprocess.Popen[bytes], proofs: CustodyHandle
) -> None:
    process, identity = runner_like("setsid sleep 72 & exit 0", f"{HOME}:gone:1")
    process.wait()
    await trio.sleep(0.05)
    assert [
        b for b in host.find_bearers(MARKER_VARIABLE, identity.start_tick) if b.marker == f"{HOME}:gone:1"
    ]
    assert await proofs.prove_dead(identity, f"{HOME}:gone:1")
    assert not [b for b in host.find_bearers(MARKER_VARIABLE) if b.marker == f"{HOME}:gone:1"]


@pytest.mark.trio
async def test_a_live_stranger_with_a_recycled_pid_is_never_killed(
    stranger: subprocess.Popen[bytes], proofs: CustodyHandle
) -> None:
    found = host.process_identity(stranger.pid)
    assert found is not None
    recorded = msgspec.structs.replace(found, start_tick=found.start_tick - 500)
    assert await proofs.prove_dead(recorded, f"{HOME}:run:1")


@pytest.mark.trio
async def test_what_may_be_a_stranger_is_left_alone_and_the_proof_fails(proofs: CustodyHandle) -> None:
    # A member without the marker, of a session whose leader is gone: it can not be told whose it is.
    process, identity = runner_like("env -i sleep 61 & exit 0", f"{HOME}:unsure:1")
    process.wait()
    await trio.sleep(0.05)
    members = [b.identity for b in host.find_bearers(MARKER_VARIABLE) if b.identity.session == identity.pid]
    assert len(members) == 1
    assert not await proofs.prove_dead(identity, f"{HOME}:unsure:1", timeout_s=0.3)
    assert host.is_alive(members[0])
    died = host.now_tick()
    assert await proofs.prove_dead(identity, f"{HOME}:unsure:1", died_tick=died), (
        "seen to have died: it is ours"
    )
    assert not host.is_alive(members[0])


@pytest.mark.parametrize(
    ("found", "nothing"),
    [
        (bearer(200, 1_200, 200, "home:run:2"), True),
        (bearer(200, 1_200, 200, MARKER), False),
        (bearer(100, 1_000, 7), False),
        (bearer(100, 5_000, 7), False),  # a stranger, perhaps: that is for a proof to say
        (bearer(200, 5_000, 100), False),
    ],
)
def test_a_runner_has_left_nothing_where_neither_its_marker_nor_its_numbers_are_found(
    found: Bearer, nothing: bool
) -> None:
    assert without_trace([bearer(1, 1), found], [Sought(RUNNER, MARKER)]) == [nothing]


@pytest.mark.trio
async def test_one_look_proves_those_dead_that_left_nothing_and_signals_nobody(proofs: CustodyHandle) -> None:
    leaves, identity = runner_like("setsid sleep 72 & exit 0", f"{HOME}:looked:1")
    gone, nobody = runner_like("exit 0", f"{HOME}:looked:2")
    leaves.wait()
    gone.wait()
    await trio.sleep(0.05)
    earlier = msgspec.structs.replace(RUNNER, boot_id="an earlier one", pid=os.getpid())
    sought = [
        Sought(identity, f"{HOME}:looked:1"),
        Sought(nobody, f"{HOME}:looked:2"),
        Sought(earlier, MARKER),
    ]
    assert await proofs.left_nothing(sought) == [False, True, True]
    left = [b for b in host.find_bearers(MARKER_VARIABLE) if b.marker == f"{HOME}:looked:1"]
    assert len(left) == 1
    assert await proofs.prove_dead(identity, f"{HOME}:looked:1")
    assert await proofs.left_nothing(sought) == [True, True, True]


@pytest.mark.trio
async def test_nothing_outlives_a_boot(proofs: CustodyHandle) -> None:
    identity = msgspec.structs.replace(RUNNER, boot_id="an earlier one", pid=os.getpid())
    with trio.fail_after(1):
        assert await proofs.prove_dead(identity, MARKER)


@pytest.mark.trio
async def test_a_process_that_can_not_be_ended_makes_the_proof_fail_within_its_bound(
    monkeypatch: pytest.MonkeyPatch, proofs: CustodyHandle
) -> None:
    process, identity = runner_like("exec sleep 60", f"{HOME}:stuck:1")

    def refuse(identity: Identity, signum: int = 0) -> bool:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(host, "kill_identity", refuse)
        with trio.fail_after(2):
            assert not await proofs.prove_dead(identity, f"{HOME}:stuck:1", timeout_s=0.2)
    assert await proofs.prove_dead(identity, f"{HOME}:stuck:1")
    process.wait()


@pytest.mark.trio
async def test_proofs_at_the_same_time_share_their_scans(
    monkeypatch: pytest.MonkeyPatch, proofs: CustodyHandle
) -> None:
    scans = 0
    scan = host.find_bearers

    def counted(variable: str, since_tick: int = 0) -> list[Bearer]:
        nonlocal scans
        scans += 1
        return scan(variable, since_tick)

    monkeypatch.setattr(custody.host, "find_bearers", counted)
    results: list[bool] = []

    async def prove(number: int) -> None:
        nobody = Identity(pid=2**22 + number, start_tick=1, boot_id=host.boot_id(), session=2**22 + number)
        results.append(await proofs.prove_dead(nobody, f"home:nobody{number}:1"))

    async with trio.open_nursery() as nursery:
        for number in range(1, 101):
            nursery.start_soon(prove, number)
    assert results == [True] * 100
    assert scans <= 3


@pytest.mark.trio
async def test_a_proof_that_is_cancelled_holds_up_no_other(proofs: CustodyHandle) -> None:
    nobody = Identity(pid=2**22 + 1, start_tick=1, boot_id=host.boot_id(), session=2**22 + 1)
    done: list[bool] = []

    async def prove() -> None:
        done.append(await proofs.prove_dead(nobody, "home:nobody:1"))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            with trio.CancelScope() as first:
                nursery.start_soon(prove)
                nursery.start_soon(prove)
                first.cancel()
                await proofs.prove_dead(nobody, "home:nobody:1")
    assert done == [True, True]


@pytest.mark.trio
async def test_a_scan_begins_after_it_was_asked_for(
    proofs: CustodyHandle, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()
    scans: list[int] = []

    def slow(variable: str, since_tick: int = 0) -> list[Bearer]:
        scans.append(since_tick)
        may_end.wait(5)
        return []

    monkeypatch.setattr(custody.host, "find_bearers", slow)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(proofs.scan, 0)
        await trio.sleep(0.02)
        nursery.start_soon(proofs.scan, 0)  # it must not be told what the first scan has seen
        await trio.sleep(0.02)
        may_end.set()
    assert len(scans) == 2


@pytest.mark.trio
async def test_who_waits_for_a_scan_when_the_actor_ends_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(custody.host, "find_bearers", lambda variable, since_tick=0: may_end.wait(5) and [])
    actor = Custody()
    told: list[str] = []

    async def look() -> None:
        try:
            await actor.handle.scan(0)
            told.append("answered")
        except Unavailable as error:
            told.append(error.message)

    async with trio.open_nursery() as lookers, trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        lookers.start_soon(look)
        await trio.sleep(0.02)
        lookers.start_soon(look)
        await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
        may_end.set()
    assert sorted(told) == ["answered", "the keeper of custody has stopped"]


if sys.platform != "linux":
    pytestmark = pytest.mark.skip(reason="reads /proc")
