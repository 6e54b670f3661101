"""The simulated machine: its three clocks, boots, and the processes that live on it.

All clocks follow trio's virtual time; a step moves the wall clock alone, sleep moves wall and elapsed time,
a reboot begins a new boot id and ends every process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import trio

from pwf.clock import Now
from pwf.host.identity import Identity
from tests.sim.virtual_time import sleep

FIRST_PID = 1_000


class Machine:
    """Clock and process table. `now` may be read inside trio only."""

    def __init__(self) -> None:
        self.boots = 1
        self.reuses: Callable[[], bool] = lambda: (
            False
        )  # whether the next process gets a pid that was used before
        self._former: list[Process] = []  # whose pids were used again
        self.steps = 0  # how often somebody has set the wall clock
        self.processes: dict[int, Process] = {}
        self._wall_ms = 1_700_000_000_000
        self._elapsed_ms = 60_000
        self._awake_ms = 50_000
        self._passed_ms = 0  # while asleep or down
        self._next_pid = FIRST_PID

    @property
    def boot_id(self) -> str:
        return f"boot-{self.boots}"

    def now(self) -> Now:
        """One reading of all clocks."""
        ran_ms = int(trio.current_time() * 1_000)
        return Now(self._wall_ms + ran_ms, self._elapsed_ms + ran_ms, self._awake_ms + ran_ms, self.boot_id)

    @property
    def true_ms(self) -> int:
        """Time as it really passes: no clock of the machine shows it."""
        return self._passed_ms + int(trio.current_time() * 1_000)

    def step_wall(self, ms: int) -> None:
        """Somebody sets the clock."""
        self.steps += 1
        self._wall_ms += ms

    def sleep(self, ms: int) -> None:
        """The lid was closed for a while; no process noticed."""
        self._passed_ms += ms
        self._wall_ms += ms
        self._elapsed_ms += ms

    def reboot(self, ms: int) -> None:
        """The machine starts again after `ms`: elapsed and awake time begin anew."""
        self.boots += 1
        self._passed_ms += ms
        self._wall_ms += ms
        ran_ms = int(trio.current_time() * 1_000)
        self._elapsed_ms = self._awake_ms = 20_000 - ran_ms

    def add_process(self, marker: str) -> Process:
        """A new process with a pid of its own; pids start again at each boot."""
        pid = self._free_pid()
        tick = int(trio.current_time() * 100)
        before = self.processes.get(pid)
        if before is not None:
            self._former.append(before)
            tick = max(tick, before.identity.start_tick + 1)  # the kernel gives no pid twice within a tick
        identity = Identity(pid=pid, start_tick=tick, boot_id=self.boot_id, session=pid)
        process = self.processes[pid] = Process(identity, marker)
        return process

    def everyone(self) -> list[Process]:
        """Every process that there ever was."""
        return [*self._former, *self.processes.values()]

    def _free_pid(self) -> int:
        """The next one, or one whose process has ended."""
        if self.reuses():
            ended = [pid for pid, process in self.processes.items() if not process.alive]
            if ended:
                return ended[-1]
        self._next_pid += 1
        return self._next_pid

    def living(self) -> Iterator[Process]:
        """Every process that has not ended."""
        return (process for process in list(self.processes.values()) if process.alive)

    def bearers(self, marker: str) -> list[Process]:
        """The living processes that bear a marker."""
        return [process for process in self.living() if process.marker == marker]


@dataclass(eq=False)
class Process:
    """One process. It does something only through `breathe`, so that it can be stopped and killed anywhere."""

    identity: Identity
    marker: str
    scope: trio.CancelScope = field(default_factory=trio.CancelScope)
    ended: trio.Event = field(default_factory=trio.Event)
    on_ended: Callable[[], None] | None = None
    running: trio.Event = field(default_factory=trio.Event)
    immortal_until: float = 0.0  # the kernel can't end it before
    kill_s: float = 0.0  # from the signal to its end
    killed: bool = False
    died: bool = False  # of its own step, or of a stranger's hand
    epoch: int = 0  # of the daemon that had it started
    promised: str = ""  # the run that it was taken for, and is still to be told of
    at_work: bool = False  # it was told to begin; before that it only waits
    kept: bool = False  # it has had a run before
    code: str = ""  # the definition that it has loaded

    def __post_init__(self) -> None:
        self.running.set()

    @property
    def alive(self) -> bool:
        return not self.ended.is_set()

    @property
    def run_id(self) -> str:
        return self.marker.split(":")[1]

    def wait_again(self, marker: str) -> None:
        """Its run is over, and it stays for another."""
        self.marker, self.promised, self.at_work, self.kept = marker, "", False, True

    def kill(self) -> None:
        """SIGKILL. It takes effect after `kill_s`, unless the process is immortal."""
        if self.alive and not self.immortal and not self.killed:
            self.killed = True
            self.scope.deadline = min(self.scope.deadline, trio.current_time() + self.kill_s)

    @property
    def immortal(self) -> bool:
        return trio.current_time() < self.immortal_until

    def survive(self, seconds: float) -> None:
        """No signal ends it for a while."""
        self.immortal_until = trio.current_time() + seconds

    def end_now(self) -> None:
        """The machine went down."""
        self.scope.cancel()

    def stop(self) -> None:
        """SIGSTOP."""
        if self.running.is_set():
            self.running = trio.Event()

    def cont(self) -> None:
        """SIGCONT."""
        self.running.set()

    async def breathe(self, seconds: float = 0.0) -> None:
        """Let time pass; a stopped process goes on only when it is continued."""
        await sleep(seconds)
        while not self.running.is_set():
            await self.running.wait()
