"""`pwf doctor`: looks at everything that pwf needs, and says what to do about what is wrong."""

from __future__ import annotations

import argparse

from pwf.cli import exits
from pwf.cli.commands import Commands
from pwf.cli.out import Out
from pwf.present import text

VERDICTS = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "red")}


def add(commands: Commands) -> None:
    commands.add(
        "doctor",
        doctor,
        "check that pwf has what it needs here",
        example="pwf doctor",
        more="The exit code is 1 when a check fails. It starts nothing and changes nothing.",
    )


def doctor(options: argparse.Namespace, out: Out) -> int:
    from pwf.client.diagnosis import checks
    from pwf.places import places

    found = []
    for check in checks(places()):
        found.append(check)
        if out.as_json:
            continue
        mark, style = VERDICTS[check.verdict]
        out.print(f"{out.paint(mark, style)}  {check.name:<12}  {text.line(check.found)}")
        if check.fix:
            out.print(f"      {'':<12}  fix: {text.line(check.fix)}")
    if out.as_json:
        out.emit({"checks": found})
    return exits.NO if any(check.verdict == "fail" for check in found) else exits.OK
