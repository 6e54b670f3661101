"""`pwf status`: the daemon in one look. It starts nothing, and is the command that must be quick."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out
from pwf.present import text

if TYPE_CHECKING:
    from pwf.protocol.operations import DaemonStatus

ANSWER_S_MAX = 10.0


def add(commands: Commands) -> None:
    commands.add(
        "status",
        status,
        "show the daemon's state",
        example="pwf status",
        more="It does not start the daemon; when none runs, the exit code is 5.",
    )


def status(options: argparse.Namespace, out: Out) -> int:
    with client(autostart=False, reconnect=False) as daemon:
        found = daemon.call("daemon.status", timeout_s=ANSWER_S_MAX)
    if out.as_json:
        out.emit(found)
    else:
        _print(found, out)
    return exits.OK


def _print(found: DaemonStatus, out: Out) -> None:
    now_ms = out.now_ms()
    style = "green" if found.state == "serving" else "yellow"
    up = text.duration(now_ms - found.started_ms)
    head = f"{out.paint(found.state, style)}  pid {found.pid}  pwf {text.line(found.version)}  up {up}"
    out.print(f"{head}  epoch {found.epoch}")
    left = text.duration(found.lease_left_ms)
    facts = {
        "home": text.line(found.home),
        "socket": text.line(found.socket),
        "lease": f"renewed {text.ago(found.renewed_ms, now_ms)}, {left} left",
        "runners": f"{found.runners} of {found.capacity} in use, {text.count(found.admissions, 'admission')}",
        "runs": _counts(found.runs, out) or "none",
    }
    if found.held:
        facts["held"] = ", ".join(f"{count} {text.line(hold)}" for hold, count in sorted(found.held.items()))
    if found.requests_open:
        oldest = text.duration(found.request_oldest_ms or 0)
        facts["requests"] = f"{found.requests_open} open, the oldest for {oldest} (pwf requests)"
    if found.effects_ambiguous:
        facts["effects"] = f"{found.effects_ambiguous} ambiguous (pwf effects --ambiguous)"
    if found.resources:
        work = f"{found.reconciles_live} being reconciled, {found.reconciles_queued} due"
        back = f", {found.resources_kept_back} paused or held" if found.resources_kept_back else ""
        facts["resources"] = f"{found.resources}: {work}{back} (pwf resource ls)"
    facts["store"] = f"{text.size(found.store_bytes)}, log {text.size(found.wal_bytes)}"
    runners_bytes = sum(runner.memory_bytes for runner in found.live)
    facts["memory"] = f"{text.size(found.memory_bytes)}, runners {text.size(runners_bytes)}"
    attached = f", {text.count(found.sessions, 'session')} of agents (pwf sessions)" if found.sessions else ""
    facts["clients"] = f"{found.clients}{attached}, {text.count(found.open_descriptors, 'open descriptor')}"
    if found.pages is not None:
        facts["pages"] = f"{text.line(found.pages)} (pwf web --link)"
    for name, value in facts.items():
        out.print(f"{name:<10}{value}")
    if found.disk_full:
        out.print(out.paint("disk full: nothing new is started until there is space", "red"))
    for violation in found.violations:
        run = f"run {text.line(violation.run_id)}: " if violation.run_id else ""
        out.print(out.paint(f"a rule is broken: {run}{text.line(violation.message)}", "red"))
        out.print(f"  fix: {text.line(violation.fix)}")
    if found.violations:
        out.print("  pwf state verify finds all of them")
    for problem in found.problems:
        out.print(out.paint(f"problem: {text.line(problem)}", "yellow"))


def _counts(runs: dict[str, int], out: Out) -> str:
    shown = [(status, count) for status, count in runs.items() if count]
    return ", ".join(f"{count:,} {text.line(status)}" for status, count in shown)
