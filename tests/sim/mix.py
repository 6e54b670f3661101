"""Swarm testing: each seed draws its own mix of faults, so that rare combinations are not drowned by common ones.

A rate is a probability per opportunity, or (names in `_s`) the mean number of seconds between two faults.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields

#: fault -> the strengths that a seed may draw for it
STRENGTHS: dict[str, tuple[float, ...]] = {
    "crash_at_point": (0.002, 0.01, 0.03),  # the daemon dies around a commit
    "crash_at_send": (0.005, 0.02, 0.05),  # the daemon dies before or after it says something
    "crash_every_s": (15.0, 60.0),
    "power_share": (0.5, 1.0),  # of crashes that take the machine's power
    "drain_every_s": (3.0, 20.0, 60.0),  # an ordered stop, and a new start
    "second_daemon_every_s": (8.0, 30.0),  # a second daemon that takes the claim from a living one
    "runner_kill_every_s": (3.0, 15.0),
    "runner_stop_every_s": (5.0, 20.0),
    "unprovable": (0.2, 0.7),  # a process survives its kill for longer than a proof may take
    "launch_refused": (0.05, 0.3),  # no process, or pinned code that does not load just now
    "runner_exit": (0.02, 0.1, 0.4),  # a step ends its own process
    "kills_daemon": (0.1, 0.95),  # a step brings the daemon down with it, perhaps each time
    "quick": (0.5, 1.0),  # a pure step takes no time, so that several ends come in one message
    "slow_runner": (0.05, 0.3),
    "slow_kill": (0.3,),  # a process takes its time to die
    "immortal_every_s": (20.0, 60.0),  # a process that can't be ended for a while
    "pid_reuse": (0.3, 1.0),  # a process has the pid of one that has ended
    "orphan_child": (0.5,),  # a step's effect is applied by a child that outlives its parent
    "publish": (0.3,),
    "stand_by": (0.3, 1.0),  # a process waits for a run of what was launched before
    "keep": (0.5, 1.0),  # a process stays after its run, for the next one
    "leave_early": (0.3, 1.0),  # a runner does not wait for the answer to its last word
    "hold": (0.3, 1.0),  # ends of pure steps leave together, a moment later
    "send_breaks": (0.05, 0.5),  # a runner dies while it is told something, which may have come
    "lingers": (0.1, 0.5),  # a runner that has said its last word does not get to its end for a while
    "walks_away": (0.05, 0.3),  # a runner leaves in the middle of its run, and says that it stays for another
    "lies": (0.2,),  # a runner names a value that it has not, or sends other bytes than it says
    "late_word": (0.3, 1.0),  # a person takes their time between looking and saying what happened
    "double_message": (0.1, 0.5),
    "late_message": (0.1, 0.5),
    "wake_lost": (0.2, 1.0),
    "wake_late": (0.3,),
    "wake_doubled": (0.5,),
    "reply_lost": (0.1, 0.3),
    "request_doubled": (0.1, 0.4),
    "disconnect": (0.05, 0.2),  # a connection closes while its request is handled
    "wall_step_every_s": (10.0, 40.0),
    "sleep_every_s": (20.0, 60.0),
    "reboot_every_s": (20.0, 60.0),
    "stall_every_s": (30.0, 60.0),  # the store does nothing for several lease lengths
    "disk_full_every_s": (20.0, 60.0),
    "io_error": (0.0005, 0.003),
    "call_fault_every_s": (3.0, 10.0),  # one system call of the store, soon, fails in one of the ways below
    "undone": (0.1, 0.5),  # a command of a batch writes and is refused: the batch is undone and run again
    "batch_lost": (0.005, 0.03),  # SQLite ends a batch's transaction, and its commands run one by one
    "lock_every_s": (5.0, 20.0),  # another process keeps the database locked for a while
    "reader_every_s": (3.0, 10.0),  # a snapshot that is held for a while
    "backup_every_s": (5.0, 20.0),
    "watched": (1.0,),  # a client follows runs
    "large": (0.2, 1.0),  # inputs and outputs that are uploaded in chunks
    "step_fails": (0.1, 0.4),
    "limited": (0.1, 0.5),  # an agent meets a usage limit
    "step_hangs": (0.05, 0.3),
    "bad_value": (0.05, 0.4),
}
ENABLED_SHARE = 0.25
CALM_SHARE = 0.03


@dataclass
class Mix:
    """What one seed does. A fault that was not drawn has rate 0."""

    runs: int
    clients: int
    capacity: int
    lease_s: float
    fault_s: float
    pause_s: float  # the longest pause of the store at each of its points
    checkpoint_bytes: int  # of the WAL, before it is copied into the database
    bounds: int | None  # of inboxes, batches and pages, where they are not the product's own
    slow_commits: float | None  # how many, where the loop has its share of batches; None: all is the writer's
    rates: dict[str, float] = field(default_factory=dict)

    def rate(self, fault: str) -> float:
        """The strength of a fault; 0 when this seed does without it."""
        assert fault in STRENGTHS, fault
        return self.rates.get(fault, 0.0)

    @property
    def loses_power(self) -> bool:
        """Whether the machine may go off."""
        return bool(self.rate("call_fault_every_s") or self.rate("power_share"))

    @property
    def disk_fails(self) -> bool:
        """Whether a call of the disk may fail."""
        return any(self.rate(fault) for fault in ("call_fault_every_s", "disk_full_every_s", "io_error"))

    def __str__(self) -> str:
        shape = ", ".join(f"{f.name}={getattr(self, f.name)}" for f in fields(self) if f.name != "rates")
        return f"{shape}; faults: " + (", ".join(f"{k}={v}" for k, v in self.rates.items()) or "none")


def draw_mix(chance: random.Random) -> Mix:
    """The mix of a seed."""
    rates: dict[str, float] = {}
    if chance.random() >= CALM_SHARE:
        share = chance.choice([ENABLED_SHARE / 2, ENABLED_SHARE, ENABLED_SHARE * 2])
        rates = {
            fault: chance.choice(strengths)
            for fault, strengths in STRENGTHS.items()
            if chance.random() < share
        }
    return Mix(
        runs=chance.choice([2, 6, 16]),
        clients=chance.randint(1, 4),
        capacity=chance.randint(1, 4),
        lease_s=chance.choice([3.0, 10.0, 30.0]),
        fault_s=chance.choice([20.0, 60.0]),
        pause_s=chance.choice([0.0, 0.005, 0.05]),
        checkpoint_bytes=chance.choice([64 * 1024, 4 * 1024 * 1024]),
        bounds=chance.choice([None, None, None, 1, 2]),
        slow_commits=chance.choice([None, 0.0, 0.02, 0.3]),
        rates=rates,
    )
