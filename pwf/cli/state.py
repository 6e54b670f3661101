"""`pwf state status` and `pwf state verify`: the database."""

from __future__ import annotations

import argparse

from pwf.cli import exits, text
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out

VERIFY_S_MAX = 600.0


def add(commands: Commands) -> None:
    group = commands.group("state", "look into the database", example="pwf state status\npwf state verify")
    group.add("status", status, "show the database's size, settings and rows", example="pwf state status")
    group.add(
        "verify",
        verify,
        "check every rule that the database must keep",
        example="pwf state verify",
        more="The exit code is 1 when a rule is broken.",
    )


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
    with client() as daemon:
        found = daemon.call("state.verify", timeout_s=VERIFY_S_MAX)
    if out.as_json:
        out.emit(found)
        return exits.NO if found.violations else exits.OK
    rules = text.count(len(found.checked), "rule")
    rows = sum(found.checked.values())
    if not found.violations:
        out.print(f"{out.paint('ok', 'green')}  {rules} hold  ({text.count(rows, 'row')} looked at)")
        return exits.OK
    for violation in found.violations:
        run = f"run {text.line(violation.run_id)}: " if violation.run_id else ""
        out.print(f"{out.paint(text.line(violation.rule), 'red')}  {run}{text.line(violation.message)}")
        if violation.fix:
            out.print(f"  fix: {text.line(violation.fix)}")
    out.print(f"{text.count(len(found.violations), 'violation')}; {rules} checked")
    return exits.NO
