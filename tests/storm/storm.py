"""One storm: a home of its own, people who use it, a killer, and the audit. Leaves no process behind."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from pwf import host
from pwf.client.sync import SyncClient
from pwf.errors import PwfError
from pwf.places import places
from pwf.protocol.origin import Origin
from pwf.protocol.runner import MARKER_VARIABLE
from tests.e2e.home import Home, ended
from tests.storm import plan, workflows
from tests.storm.audit import Findings, audit
from tests.storm.killer import Killer
from tests.storm.people import Commands, Helper, Promises, Starter
from tests.storm.sink import Outside

SETTLE_S_MAX = 120.0  # from the last kill to the end of every run
LEAVE_S_MAX = 15.0  # from the daemon's stop to the end of every process

Say = Callable[[str], None]


@dataclass
class Result:
    """What a storm was, and what the audit says."""

    seed: int
    seconds: float
    settled_s: float
    kills: Counter[str]
    missed: Counter[str]
    daemons: int
    promises: Promises
    findings: Findings


def storm(folder: Path, *, seed: int, seconds: float, pause_s: float, runners: int, say: Say) -> Result:
    """Run it. `pause_s` is the mean time between kills."""
    home = Home(folder)
    home.config(f"max_runners = {runners}\n")
    os.environ.pop("PWF_HOME", None)
    at = places(home.environment)
    promises, over, settled = Promises(), threading.Event(), threading.Event()
    origin = Origin(cwd=str(home.project), python=sys.executable, environment={"PATH": os.environ["PATH"]})
    with Outside(folder / "outside") as outside:
        workflows.write(home.workflows, outside.folder, outside.url)
        commands = Commands(home, promises)
        starter = Starter(
            home, plan.runs(seed), "starter", at, promises, over, origin=origin, commands=commands
        )
        helper = Helper(outside, "helper", at, promises, settled)
        killer = Killer(home, plan.kills(seed, pause_s), commands)
        try:
            for one in (starter, helper, killer):
                one.start()
            _watch(seconds, (starter, helper, killer), promises, killer, say)
            killer.stop()
            over.set()
            starter.join(60)
            settled_s = _settle(home, commands, say)
            settled.set()
            helper.join(60)
            _raise_faults(starter, helper, killer)
            commands.end()
            killer.look()
            with SyncClient(at, autostart=True) as client:
                daemons = client.call("daemon.status").epoch
                home_id = client.call("state.status").home_id
                findings = audit(client, promises, outside)
        finally:
            over.set()
            settled.set()
            killer.stop()
            commands.end()
            _end(home)
    _audit_processes(killer.seen, home_id, findings)
    return Result(seed, seconds, settled_s, killer.kills, killer.missed, daemons, promises, findings)


def _watch(seconds: float, people: tuple[object, ...], promises: Promises, killer: Killer, say: Say) -> None:
    ends = time.monotonic() + seconds
    told = time.monotonic()
    while time.monotonic() < ends:
        time.sleep(0.2)
        if any(getattr(one, "fault", None) for one in people):
            return
        if time.monotonic() - told > 10:
            told = time.monotonic()
            kills = ", ".join(f"{count} {kind}" for kind, count in sorted(killer.kills.items()))
            say(f"{ends - told:4.0f} s left: {len(promises.started):,} runs acknowledged; killed {kills}")


def _settle(home: Home, commands: Commands, say: Say) -> float:
    """Wait until every run has ended; the seconds that took."""
    began = time.monotonic()
    at = places(home.environment)
    client = SyncClient(at, autostart=True)
    left: dict[str, int] = {}
    while time.monotonic() - began < SETTLE_S_MAX:
        commands.living()
        try:
            client.open()
            runs = client.call("daemon.status").runs
        except PwfError:
            client.close()
            time.sleep(0.2)
            continue
        left = {status: runs.get(status, 0) for status in ("queued", "running", "waiting", "held")}
        if not any(left.values()):
            break
        time.sleep(0.1)
    client.close()
    took = time.monotonic() - began
    say(f"settled {took:.1f} s after the last kill" + (f", left: {left}" if any(left.values()) else ""))
    return took


def _raise_faults(*people: Starter | Helper | Killer) -> None:
    for one in people:
        if one.fault is not None:
            raise one.fault


def _end(home: Home) -> None:
    """Stop the daemon, by force if need be."""
    home.run("stop", "--drain", "0s", code=None)
    pid = home.record.pid
    if pid and psutil.pid_exists(pid):
        daemon = psutil.Process(pid)
        if daemon.environ().get("PWF_HOME") == str(home.home):
            daemon.kill()


def _audit_processes(seen: set[psutil.Process], home_id: str, findings: Findings) -> None:
    """Of all that was seen below a daemon, and of all that bears this home's marker, nothing is left."""
    until = time.monotonic() + LEAVE_S_MAX
    while True:
        left = [process for process in seen if not ended(process)]
        bearers = [
            bearer.identity
            for bearer in host.find_bearers(MARKER_VARIABLE)
            if bearer.marker is not None and bearer.marker.startswith(home_id)
        ]
        if not left and not bearers:
            return
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    for process in left:
        findings.fault(f"a process is left: {process}")
        process.kill()
    for identity in bearers:
        findings.fault(f"a process of a run is left: {identity.pid}")
        host.kill_identity(identity)
