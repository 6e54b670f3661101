"""`pwf state`: the database, its soundness, its backups and its age."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out, UsageError
from pwf.present import text

if TYPE_CHECKING:
    from pwf.protocol.operations import PruneResult, VerifyResult
    from pwf.protocol.views import Violation

LONG_S_MAX = 24 * 3_600.0  # what reads or writes everything takes as long as it takes


def add(commands: Commands) -> None:
    group = commands.group("state", "look into the database", example="pwf state status\npwf state verify")
    group.add("status", status, "show the database's size, settings and rows", example="pwf state status")
    parser = group.add(
        "verify",
        verify,
        "check every rule that the database must keep",
        example="pwf state verify\npwf state verify ~/pwf-2026-01-31.db",
        more="The exit code is 1 when a rule is broken. With FILE no daemon is asked: a backup, or the\n"
        "database of a home whose daemon doesn't start.",
    )
    parser.add_argument(
        "file", metavar="FILE", nargs="?", help="a database; without it, the one that is served"
    )
    parser = group.add(
        "backup",
        backup,
        "write a verified copy of the database while it is served",
        example="pwf state backup ~/pwf-2026-01-31.db",
        more="The file must not exist. It holds everything: one file is a whole backup.\n"
        "The exit code is 1 when it was made, but something in it is damaged or breaks a rule.",
    )
    parser.add_argument("file", metavar="FILE", help="a new file")
    parser = group.add(
        "restore",
        restore,
        "put a backup into an empty state folder",
        example="pwf state restore ~/pwf-2026-01-31.db",
        more="No daemon may run. What was going on is held as restored until somebody resumes it,\n"
        "since nobody knows what happened after the backup was made.",
    )
    parser.add_argument("file", metavar="FILE", help="a backup")
    group.add(
        "new",
        new,
        "make an empty database where the one that was served is gone",
        example="pwf state new",
        more="A daemon never does that by itself: what it served before would seem to be lost in silence.\n"
        "Where there is a database it is refused.",
    )
    parser = group.add(
        "prune",
        prune,
        "remove runs that ended before a time, with their history",
        example="pwf state prune --before 30d --dry-run\npwf state prune --before 2026-01-31",
        more="A run goes together with its restarts, when all of them ended before that. Runs that have\n"
        "not ended, and runs with an effect that nobody has decided, always stay.",
    )
    parser.add_argument("--before", metavar="TIME", required=True, help="ISO 8601, or a distance back: 30d")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def status(options: argparse.Namespace, out: Out) -> int:
    with client() as daemon:
        found = daemon.call("state.status")
    if out.as_json:
        out.emit(found)
        return exits.OK
    out.print(out.paint(text.line(found.database), "bold"))
    out.print(f"{'schema':<12}{found.schema}  (SQLite {text.line(found.sqlite)})")
    out.print(f"{'home id':<12}{text.line(found.home_id)}")
    sizes = (
        f"{text.size(found.file_bytes)}, log {text.size(found.wal_bytes)}, free {text.size(found.free_bytes)}"
    )
    out.print(f"{'size':<12}{sizes}, pages of {text.size(found.page_bytes)}")
    out.print()
    out.table(
        ["TABLE", "ROWS"], [[text.line(name), f"{rows:,}"] for name, rows in sorted(found.rows.items())]
    )
    out.print()
    settings = sorted(found.settings.items())
    out.table(["SETTING", "VALUE"], [[text.line(name), text.line(value)] for name, value in settings])
    return exits.OK


def verify(options: argparse.Namespace, out: Out) -> int:
    found = _verified(options.file)
    if out.as_json:
        out.emit(found)
        return exits.NO if found.violations else exits.OK
    checked = dict(found.checked)
    rules = text.count(checked.pop("rules", 0), "rule")
    rows = sum(checked.values())
    if not found.violations:
        out.print(f"{out.paint('ok', 'green')}  {rules} hold  ({text.count(rows, 'row')} looked at)")
        return exits.OK
    for violation in found.violations:
        out.print(_broken(violation, out))
        if violation.fix:
            out.print(f"  fix: {text.line(violation.fix)}")
    out.print(f"{text.count(len(found.violations), 'violation')}; {rules} checked")
    return exits.NO


def _verified(file: str | None) -> VerifyResult:
    if file is not None:
        from pathlib import Path

        from pwf.actors.upkeep.restoring import verify_file

        return verify_file(Path(_path(file)))
    with client() as daemon:
        found: VerifyResult = daemon.call("state.verify", timeout_s=LONG_S_MAX)
    return found


def backup(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import BackupPayload

    path = _path(options.file)
    with client() as daemon:
        made = daemon.call("state.backup", BackupPayload(path=path), timeout_s=LONG_S_MAX)
    if out.as_json:
        out.emit(made)
    else:
        facts = f"{text.size(made.bytes)}, {text.count(made.runs, 'run')}"
        _print_copied(made.path, facts, made.violations, out)
    return exits.NO if made.violations else exits.OK


def _print_copied(path: str, facts: str, violations: tuple[Violation, ...], out: Out) -> None:
    """A copy, and what is wrong in it as in what it was copied from."""
    mark = out.paint("copied, but not sound", "yellow") if violations else out.paint("ok", "green")
    out.print(f"{mark}  {text.line(path)}  ({facts}{'' if violations else ', verified'})")
    for violation in violations:
        out.note(_broken(violation, out))
        if violation.fix:
            out.note(f"  fix: {text.line(violation.fix)}")


def _broken(violation: Violation, out: Out) -> str:
    run = f"run {text.line(violation.run_id)}: " if violation.run_id else ""
    return f"{out.paint(text.line(violation.rule), 'red')}  {run}{text.line(violation.message)}"


def _path(typed: str) -> str:
    if not typed:
        raise UsageError("FILE is empty", hint="name a file: pwf state --help")
    path = os.path.abspath(os.path.expanduser(typed))
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError("the name of FILE is not UTF-8", hint="name another file") from error
    return path


def restore(options: argparse.Namespace, out: Out) -> int:
    from pathlib import Path

    from pwf.actors.upkeep.restoring import restore as restore_home

    done = restore_home(Path(_path(options.file)))
    code = exits.NO if done.violations else exits.OK
    if out.as_json:
        out.emit(done)
        return code
    _print_copied(done.database, text.count(done.runs, "run"), done.violations, out)
    for fact in done.newer:
        out.print(f"newer: {text.line(fact)}")
    going_on = sum(done.going_on.values())
    if going_on:
        out.print(
            f"{text.count(going_on, 'run')} had not ended: held as restored until resumed (pwf ls --status held)"
        )
    return code


def new(options: argparse.Namespace, out: Out) -> int:
    from pwf.actors.upkeep.restoring import begin_anew

    made = str(begin_anew())
    if out.as_json:
        out.emit({"database": made})
    else:
        out.print(f"{out.paint('ok', 'green')}  {text.line(made)}  (empty)")
    return exits.OK


def prune(options: argparse.Namespace, out: Out) -> int:
    from pwf.cli.typed import past_ms
    from pwf.protocol.operations import PrunePayload

    before_ms = past_ms(options.before, out.now_ms(), "--before", out.note)
    payload = PrunePayload(before_ms=before_ms, dry_run=options.dry_run)
    with client() as daemon:
        found = daemon.call("state.prune", payload, timeout_s=LONG_S_MAX)
    if out.as_json:
        out.emit(found)
    else:
        _print_pruned(found, out)
    return exits.OK


def _print_pruned(found: PruneResult, out: Out) -> None:
    when = text.clock_time(found.before_ms, out.now_ms())
    verb = "would remove" if found.dry_run else "removed"
    trees = "" if found.trees == found.runs else f" in {text.count(found.trees, 'tree')} of restarts"
    out.print(f"{verb} {text.count(found.runs, 'run')}{trees} that ended before {when}")
    for reason, count in sorted(found.kept.items()):
        out.print(f"kept {text.count(count, 'run')}: {text.line(reason)} (pwf effects --ambiguous)")
    if not found.dry_run:
        out.print(
            f"removed {text.count(found.values, 'value')} that nothing needs; gave back {text.size(found.freed_bytes)}"
        )
        if found.owed_bytes:
            out.print(
                f"{text.size(found.owed_bytes)} more come back when no other process reads the database (pwf doctor)"
            )
