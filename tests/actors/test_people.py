"""Who is taken for a person, and who for a step, whatever has died in between and whatever a pid is used for by now."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import trio

from pwf import host
from pwf.actors.operations.caller import Caller
from pwf.actors.operations.people import (
    UNKNOWN,
    Lineage,
    People,
    Relative,
    lineage_by,
    read_lineage,
    run_behind,
)
from pwf.actors.sessions.session_coordinator import Attachment
from pwf.errors import PersonNeeded
from pwf.host.identity import Identity, Process
from pwf.protocol.runner import MARKER_VARIABLE, marked_run, run_marker

MARKER = run_marker("home", "r:1", 3)
DAEMON = 50


def identity(pid: int, tick: int = 0) -> Identity:
    return Identity(pid=pid, start_tick=tick or pid, boot_id="b", session=1)


class Machine:
    """A table of processes: pid -> (start tick, parent), and who bears which marker."""

    def __init__(self, *rows: tuple[int, int], markers: dict[int, str] | None = None) -> None:
        self.table = {pid: Process(identity(pid), parent, False) for pid, parent in rows}
        self.markers = markers or {}
        self.after_reads: dict[
            int, Process | None
        ] = {}  # what the peer's row becomes when its marker was read

    def read_process(self, pid: int) -> Process | None:
        return self.table.get(pid)

    def read_variable(self, pid: int, variable: str) -> str | None:
        assert variable == MARKER_VARIABLE
        for changed, row in self.after_reads.items():
            if row is None:
                self.table.pop(changed, None)
            else:
                self.table[changed] = row
        return self.markers.get(pid)


SHELL = ((1, 0), (10, 1), (20, 10), (90, 20))
PEER = identity(90)


def run_of(machine: Machine, runners: list[tuple[str, Identity]] | None = None) -> str | None:
    family = read_lineage(machine, PEER)
    assert family is not None
    found = run_behind(family, runners or [], DAEMON)
    return None if found is None else found.run_id


def test_a_process_below_nothing_of_ours_is_a_persons() -> None:
    assert run_of(Machine(*SHELL)) is None


def test_a_process_that_bears_a_runs_marker_is_a_step_though_all_between_have_died() -> None:
    assert run_of(Machine((1, 0), (90, 1), markers={90: MARKER})) == "r:1"


def test_a_process_below_one_that_bears_a_marker_is_a_step_though_its_own_environment_was_cleaned() -> None:
    assert run_of(Machine(*SHELL, markers={20: MARKER})) == "r:1"


def test_a_process_below_a_runner_is_a_step_though_the_runner_shows_no_marker() -> None:
    assert run_of(Machine(*SHELL), [(MARKER, identity(10))]) == "r:1"


def test_a_runner_whose_pid_is_anothers_by_now_makes_nobody_a_step() -> None:
    assert run_of(Machine(*SHELL), [(MARKER, identity(10, tick=3))]) is None


def test_what_a_workflows_code_does_while_it_is_loaded_is_no_persons_word() -> None:
    assert run_of(Machine((1, 0), (DAEMON, 1), (60, DAEMON), (90, 60))) == UNKNOWN
    assert run_of(Machine((1, 0), (90, 1), markers={90: "pwf:waiting:0"})) == UNKNOWN
    assert run_of(Machine((1, 0), (90, 1), markers={90: "." * 512})) == UNKNOWN


def test_a_peer_that_has_ended_or_whose_pid_is_anothers_is_nobody() -> None:
    assert read_lineage(Machine((1, 0)), PEER) is None
    machine = Machine(*SHELL)
    machine.table[90] = Process(identity(90, tick=95), 20, False)
    assert read_lineage(machine, PEER) is None


@pytest.mark.parametrize(
    "then",
    [None, Process(identity(90, tick=95), 1, False), Process(PEER, 1, True)],
    ids=["gone", "another", "dead"],
)
def test_a_peer_that_ends_while_it_is_looked_at_is_nobody(then: Process | None) -> None:
    machine = Machine(*SHELL)
    machine.after_reads = {90: then}
    assert read_lineage(machine, PEER) is None


def test_a_parent_that_is_younger_than_its_child_is_a_stranger_with_its_pid() -> None:
    machine = Machine(*SHELL, markers={20: MARKER})
    machine.table[20] = Process(identity(20, tick=99), 1, False)
    machine.after_reads = {90: Process(PEER, 10, False)}  # the child has a new parent by now
    family = read_lineage(machine, PEER)
    assert family is not None
    assert [one.identity.pid for one in family] == [90, 10, 1]


@pytest.mark.parametrize(
    ("marker", "run_id"),
    [(MARKER, "r:1"), (run_marker("h", "r", 1), "r"), ("pwf:waiting:0", None), ("...", None), ("a:b", None)],
)
def test_a_marker_names_its_run(marker: str, run_id: str | None) -> None:
    assert marked_run(marker) == run_id


def people(
    lineage: Lineage,
    *,
    steps_may_answer: bool = False,
    sessions: tuple[Attachment, ...] = (),
    servers: tuple[Identity, ...] = (),
) -> People:
    return People(
        lineage, list, lambda: list(sessions), lambda: list(servers), steps_may_answer=steps_may_answer
    )


def caller(peer: Identity | None) -> Caller:
    nothing: Any = None
    return Caller(1, nothing, peer=peer)


async def a_step(peer: Identity) -> list[Relative] | None:
    return [Relative(peer, MARKER)]


async def a_person(peer: Identity) -> list[Relative] | None:
    return [Relative(peer, None)]


async def nobody(_peer: Identity) -> list[Relative] | None:
    return None


@pytest.mark.trio
async def test_a_step_settles_no_effect_and_answers_only_where_it_may_and_under_its_runs_name() -> None:
    for may in (False, True):
        with pytest.raises(PersonNeeded, match="a step of run r:1"):
            await people(a_step, steps_may_answer=may).check(caller(PEER), "settle an effect")
    with pytest.raises(PersonNeeded, match="answer a checkpoint") as caught:
        await people(a_step).who_answers(caller(PEER), "client:ann")
    assert "steps_may_answer" in (caught.value.hint or "")
    assert await people(a_step, steps_may_answer=True).who_answers(caller(PEER), "client:ann") == "run:r:1"
    assert await people(a_step).who_acts(caller(PEER), "client:ann") == ("run:r:1", False)


@pytest.mark.trio
async def test_what_descends_from_an_attached_sessions_process_is_no_person_but_may_attach_one_itself() -> (
    None
):
    async def an_agents_shell(peer: Identity) -> list[Relative] | None:
        return [Relative(peer, None), Relative(identity(70), None), Relative(identity(1), None)]

    for session in (identity(70), PEER):
        who = people(an_agents_shell, sessions=(Attachment("chat", session, session),))
        with pytest.raises(PersonNeeded, match="the agent of session chat"):
            await who.check(caller(PEER), "decide")
        await who.check_no_run(caller(PEER), "attach a session")
    another = Attachment("chat", identity(71), identity(71))
    await people(an_agents_shell, sessions=(another,)).check(caller(PEER), "decide")
    with pytest.raises(PersonNeeded, match="no step of a run may attach a session"):
        await people(a_step).check_no_run(caller(PEER), "attach a session")


@pytest.mark.trio
async def test_a_person_may_both_and_is_named() -> None:
    await people(a_person).check(caller(PEER), "settle an effect")
    assert await people(a_person).who_answers(caller(PEER), "client:ann") == "client:ann"
    assert await people(a_person).who_acts(caller(PEER), "client:ann") == ("client:ann", True)


@pytest.mark.trio
@pytest.mark.parametrize("peer", [PEER, None])
async def test_who_can_not_be_looked_at_is_no_person(peer: Identity | None) -> None:
    for may in (False, True):
        with pytest.raises(PersonNeeded, match="can not be looked at"):
            await people(nobody, steps_may_answer=may).who_answers(caller(peer), "client:ann")


@pytest.mark.trio
@pytest.mark.skipif(sys.platform != "linux", reason="markers of others are read in /proc")
async def test_the_lineage_of_a_real_process_is_read_with_its_marker() -> None:
    environment = {**os.environ, MARKER_VARIABLE: MARKER}
    child = subprocess.Popen(  # noqa: ASYNC220 - a test may block its own loop
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE, env=environment
    )
    try:
        peer = host.process_identity(child.pid)
        assert peer is not None
        with trio.fail_after(20):
            family = await lineage_by(host)(peer)
        assert family is not None
        assert [(one.identity.pid, one.marker) for one in family[:2]] == [
            (child.pid, MARKER),
            (os.getpid(), None),
        ]
    finally:
        child.communicate()
    assert await lineage_by(host)(peer) is None


@pytest.mark.trio
async def test_a_server_of_the_daemon_speaks_for_people_and_what_it_starts_does_not() -> None:
    async def below_the_daemon(peer: Identity) -> list[Relative] | None:
        return [Relative(peer, None), Relative(identity(80), None), Relative(identity(os.getpid()), None)]

    await people(below_the_daemon, servers=(PEER,)).check(caller(PEER), "decide")
    for servers in ((), (identity(80),), (identity(PEER.pid, tick=99),)):
        with pytest.raises(PersonNeeded, match="code of a workflow"):
            await people(below_the_daemon, servers=servers).check(caller(PEER), "decide")


#: The first process, an agent's host, its shell, and PEER, which shows forms and is below all of them.
HOST, BASH, OWN = identity(20), identity(30), Attachment("own", identity(20), PEER)


def below_a_host(marker: str | None = None) -> Lineage:
    async def lineage(peer: Identity) -> list[Relative] | None:
        return [
            Relative(peer, None),
            Relative(BASH, marker),
            Relative(HOST, None),
            Relative(identity(1), None),
        ]

    return lineage


@pytest.mark.trio
async def test_a_form_is_a_persons_where_no_agent_is_above_it_or_the_one_whose_session_it_has_attached() -> (
    None
):
    younger = Attachment("late", HOST, identity(95))
    for sessions in ((), (OWN,), (OWN, younger), (younger, OWN), (Attachment("far", identity(71), PEER),)):
        await people(below_a_host(), sessions=sessions).check_host(PEER)


@pytest.mark.trio
@pytest.mark.parametrize(
    "sessions",
    [
        (Attachment("chat", HOST, HOST),),
        (Attachment("chat", HOST, identity(25)),),
        (OWN, Attachment("chat", HOST, identity(25))),
        (Attachment("own", BASH, PEER), Attachment("chat", HOST, identity(25))),
        (Attachment("own", BASH, PEER), Attachment("chat", HOST, identity(95))),
        (OWN, Attachment("chat", BASH, identity(95))),
        (Attachment("chat", PEER, PEER),),
    ],
    ids=[
        "the agent attached by itself",
        "its tools attached",
        "its shell names the host as its own",
        "its shell names itself",
        "its shell was there first",
        "an agent between",
        "the agent itself",
    ],
)
async def test_a_form_of_what_an_agent_has_started_is_no_persons(sessions: tuple[Attachment, ...]) -> None:
    with pytest.raises(PersonNeeded, match="this form comes from the agent of session chat"):
        await people(below_a_host(), sessions=sessions).check_host(PEER)


@pytest.mark.trio
async def test_a_form_of_a_step_or_of_who_can_not_be_looked_at_is_no_persons() -> None:
    with pytest.raises(PersonNeeded, match="a step of run r:1"):
        await people(below_a_host(MARKER), sessions=(OWN,)).check_host(PEER)
    under_a_runner = People(below_a_host(), lambda: [(MARKER, BASH)], list, list, steps_may_answer=True)
    with pytest.raises(PersonNeeded, match="a step of run r:1"):
        await under_a_runner.check_host(PEER)
    with pytest.raises(PersonNeeded, match="can not be looked at"):
        await people(nobody).check_host(PEER)
