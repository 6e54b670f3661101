"""The gremlin: does to the world, at random times, what its seed's mix says.

Faults that happen at points (a send, a commit, a wake-up) are drawn where the point is; here are those that come
by the clock. `heal` ends all of them, so that the world can be asked for progress.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import apsw
import trio

from pwf.store.backup import write_backup
from tests.sim.clients import TRANSIENT
from tests.sim.deaths import Wounds
from tests.sim.disk import PagesDropped, PowerFails, ShortRead
from tests.sim.machine import Process
from tests.sim.virtual_time import sleep

HOUR_MS = 3_600_000
DAEMONS_MAX = 3
CALLS_MAX = 40
CHANGES = frozenset({"write", "sync", "truncate", "delete"})
#: fault of one call -> the calls that it may hit
CALL_FAULTS: dict[str, frozenset[str]] = {
    "call_error": CHANGES | {"read", "open"},
    "call_full": frozenset({"write"}),
    "call_dropped": frozenset({"sync"}),
    "call_short": frozenset({"read"}),
    "call_power": CHANGES,
    "slow_call": CHANGES | {"read"},
}
#: A read of the database itself that comes short would be the end of the file: SQLite takes the rest for zeros.
ENDS_OF = {name: ("-wal",) if name == "call_short" else ("pwf.db", "-wal") for name in CALL_FAULTS}


class Gremlin:
    """Runs one task per kind of fault that the seed has drawn."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._chance = world.stream("gremlin")
        self._full = False
        self._locks: set[apsw.Connection] = set()
        self._armed: tuple[str, int] | None = None  # a fault, and how many calls are left before it
        self._kinds: dict[str, Callable[[], None]] = {
            "crash_every_s": self._crash,
            "drain_every_s": self._drain,
            "runner_kill_every_s": self._kill_runner,
            "runner_stop_every_s": self._stop_runner,
            "immortal_every_s": self._make_immortal,
            "wall_step_every_s": self._step_wall,
            "sleep_every_s": self._sleep,
            "reboot_every_s": self._reboot,
            "stall_every_s": self._stall,
            "disk_full_every_s": self._fill_disk,
            "second_daemon_every_s": self._second_daemon,
            "reader_every_s": self._hold_snapshot,
            "lock_every_s": self._hold_lock,
            "call_fault_every_s": self._arm,
            "backup_every_s": self._back_up,
        }

    async def run(self) -> None:
        """Until cancelled; does nothing once the world is calm."""
        async with trio.open_nursery() as self._nursery:
            for kind, act in self._kinds.items():
                if self._world.rate(kind):
                    self._nursery.start_soon(self._every, kind, act)

    async def _every(self, kind: str, act: Callable[[], None]) -> None:
        while not self._world.calm:
            await sleep(self._chance.expovariate(1 / self._world.mix.rate(kind)))
            if not self._world.calm:
                act()

    def heal(self) -> None:
        """Everything that was made to fail works again."""
        self._full = False
        # No absolute time is still to come, and nothing is old enough to be removed.
        self._world.machine.step_wall(10 * 24 * HOUR_MS)
        for process in self._world.machine.living():
            process.cont()
            process.survive(0.0)
            process.kill_s = 0.0
        for life in self._world.alive:
            life.stalled_until = 0.0

    # --- the daemon and the machine -----------------------------------------------------------------------

    def _crash(self) -> None:
        if self._chance.random() < self._world.rate("power_share"):
            self._lose_power()
            return
        life = self._world.life
        if life is not None:
            self._world.fault("crash", life=life.number, at="any time")
            life.crash()

    def _lose_power(self) -> None:
        self._world.fault("power_loss")
        self._world.power_fails = bool(self._world.alive)
        self._go_down(self._chance.randrange(60_000))

    def _reboot(self) -> None:
        self._world.fault("reboot")
        self._go_down(self._chance.randrange(HOUR_MS))

    def _go_down(self, down_ms: int) -> None:
        for process in self._world.machine.living():
            process.end_now()
        for life in list(self._world.alive):
            life.crash()
        self._world.machine.reboot(down_ms)

    def _drain(self) -> None:
        life = self._world.life
        if life is not None and life.serving:
            self._world.fault("drain", life=life.number)
            life.stop()

    def _stall(self) -> None:
        life = self._world.life
        if life is not None:
            seconds = self._world.mix.lease_s * 3
            self._world.fault("stall", life=life.number, seconds=seconds)
            life.stalled_until = trio.current_time() + seconds

    def _second_daemon(self) -> None:
        """The kernel's lock failed us: a second daemon, or a third, takes the claim while the others live."""
        if self._world.alive and len(self._world.alive) < DAEMONS_MAX:
            self._world.fault("second_daemon")
            self._nursery.start_soon(self._world.live_once)

    # --- clocks -------------------------------------------------------------------------------------------

    def _step_wall(self) -> None:
        ms = self._chance.choice([-24 * HOUR_MS, -5_000, 5_000, 24 * HOUR_MS])
        self._world.fault("wall_step", ms=ms)
        self._world.machine.step_wall(ms)

    def _sleep(self) -> None:
        ms = self._chance.choice([5_000, 8 * HOUR_MS])
        self._world.fault("sleep", ms=ms)
        self._world.machine.sleep(ms)

    # --- processes ----------------------------------------------------------------------------------------

    def _some_process(self) -> Process | None:
        living = list(self._world.machine.living())
        return self._chance.choice(living) if living else None

    def _kill_runner(self) -> None:
        process = self._some_process()
        if process is not None:
            self._world.fault("runner_kill", marker=process.marker)
            process.died = True
            process.kill()

    def _stop_runner(self) -> None:
        """SIGSTOP; it comes back, perhaps long after its lease."""
        process = self._some_process()
        if process is not None:
            self._world.fault("runner_stop", marker=process.marker)
            process.stop()
            self._nursery.start_soon(self._later, self._chance.choice([1.0, 5.0, 60.0]), process.cont)

    def _make_immortal(self) -> None:
        process = self._some_process()
        if process is not None:
            self._world.fault("immortal", marker=process.marker)
            process.survive(self._chance.choice([3.0, 20.0]))

    async def _later(self, seconds: float, act: Callable[[], None]) -> None:
        await sleep(seconds)
        act()

    # --- the disk -----------------------------------------------------------------------------------------

    def _hold_snapshot(self) -> None:
        """A reader holds what it sees, so that no checkpoint may go past it."""
        self._open("reader", "BEGIN; SELECT count(*) FROM runs", self._chance.choice([0.5, 2.0, 15.0]))

    def _hold_lock(self) -> None:
        """Another process has begun to write, and takes its time."""
        self._open("lock", "BEGIN IMMEDIATE", self._chance.choice([0.5, 3.0]))

    def _open(self, kind: str, sql: str, seconds: float) -> None:
        """A foreign connection does something for a while; it is closed with its daemon at the latest."""
        life = self._world.life
        if life is None:
            return
        try:
            connection = apsw.Connection(str(self._world.database), vfs=life.mount.mount_name)
            life.snapshots.add(connection)
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.execute(sql).fetchall()
        except apsw.Error:
            return  # it is closed with its daemon
        self._world.fault(kind, life=life.number)
        if kind == "lock":
            self._locks.add(connection)
        self._nursery.start_soon(self._later, seconds, partial(self._release, life, connection))

    def _back_up(self) -> None:
        """A backup is made in the middle of what the daemon does, perhaps of an open transaction."""
        life = self._world.life
        if life is None or not life.serving:
            return
        target = self._world.folder / "backup.db"
        target.unlink(missing_ok=True)
        now = self._world.machine.now()
        made = write_backup(
            self._world.database, target, now=now, epoch=life.epoch, check_wanted=lambda: None
        )
        self._world.fault("backup", life=life.number, runs=made.runs)
        broken = [one for one in made.violations if one.rule not in TRANSIENT]
        self._world.auditor.check(not broken, f"a backup is sound: {broken}")
        self._world.auditor.look_at_backup(target)

    def _release(self, life: Any, connection: apsw.Connection) -> None:
        life.snapshots.discard(connection)
        self._locks.discard(connection)
        connection.close()

    def _arm(self) -> None:
        """One of the next calls fails."""
        name = self._chance.choice(sorted(CALL_FAULTS))
        self._armed = (name, self._chance.randrange(1, CALLS_MAX))

    def _fire(self, wounds: Wounds, act: str, file: str) -> None:
        """Count down to the call that was chosen, and let its fault happen."""
        if self._armed is None:
            return
        name, left = self._armed
        acts = CALL_FAULTS[name]
        if act not in acts or not file.endswith(ENDS_OF[name]):
            return
        self._armed = (name, left - 1) if left > 1 else None
        if left > 1:
            return
        if name == "call_dropped" and len(self._world.alive) > 1:
            return  # the other would build upon what this one knows to be lost; the kernel's lock forbids two
        self._world.fault(name, act=act)
        if name == "slow_call":
            clock: Any = trio.lowlevel.current_clock()
            clock.jump(self._chance.choice([1.0, 5.0, 40.0]))
        elif name == "call_power":
            self._world.power_fails = bool(self._world.alive)
            self._go_down(self._chance.randrange(60_000))
            raise PowerFails
        elif name == "call_full":
            wounds.hit("disk_full")
            raise apsw.FullError("no space")
        else:
            wounds.hit("io_error")
            raise {"call_dropped": PagesDropped(), "call_short": ShortRead()}.get(name) or apsw.IOError(
                f"{act} failed"
            )

    def _fill_disk(self) -> None:
        self._world.fault("disk_full")
        self._full = True
        self._nursery.start_soon(self._later, self._chance.choice([2.0, 20.0]), self._free_disk)

    def _free_disk(self) -> None:
        self._full = False

    @property
    def locks(self) -> bool:
        """Whether a daemon that lives finds the database locked by another process."""
        return any(self._locks & life.snapshots for life in self._world.alive)

    def touch_disk(self, wounds: Wounds, act: str, file: str) -> None:
        """A daemon's file system is asked for something, and fails as the mix says."""
        if not self._world.calm:
            self._fire(wounds, act, file)
        if self._full and act == "write":
            wounds.hit("disk_full")
            raise apsw.FullError("no space")
        rate = self._world.rate("io_error")
        if rate and self._chance.random() < rate:
            self._world.fault("io_error", act=act)
            wounds.hit("io_error")
            raise apsw.IOError(f"{act} failed")
