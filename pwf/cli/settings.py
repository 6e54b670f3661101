"""`pwf settings`: what the settings of a run are, and a change of them while it goes on."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pwf.cli import exits
from pwf.cli.commands import RUN_HELP, Commands, client
from pwf.cli.out import Out, UsageError
from pwf.present import text

if TYPE_CHECKING:
    from pwf.protocol.settings import PathRule, SettingsView

GET_EXAMPLE = "pwf settings get @last\npwf settings get 3kq /limits/cpu\npwf settings get 3kq --scope review"
CHANGE_EXAMPLE = """pwf settings change @last workers=4
pwf settings change 3kq /limits/cpu=2 --expect 7
pwf settings change 3kq --patch '[{"op": "remove", "path": "/only"}]'"""
SCOPE_HELP = "those of the workflow that is included as NODE, while the run is in it"
WORDS = """NAME=VALUE puts a value in place of the one that is there, or adds it; VALUE is JSON, or text. A longer
path is a JSON Pointer: /limits/cpu=2. All of it happens or nothing; the next step of the run sees it."""


def add(commands: Commands) -> None:
    inner = commands.group(
        "settings",
        "look at the settings of a run, or change them while it goes on",
        example=CHANGE_EXAMPLE,
        alone="get",
        words=1,
    )
    parser = inner.add("get", get, "show the settings of a run, and who may change what", example=GET_EXAMPLE)
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("path", metavar="PATH", nargs="?", help="only what is there (a JSON Pointer)")
    parser.add_argument("--scope", metavar="NODE", default="", help=SCOPE_HELP)
    parser = inner.add("change", change, "change the settings of a run", example=CHANGE_EXAMPLE, more=WORDS)
    parser.add_argument("run_id", metavar="RUN", help=RUN_HELP)
    parser.add_argument("set", metavar="NAME=VALUE", nargs="*", help="what to put where")
    parser.add_argument(
        "--patch", metavar="JSON|@FILE|-", help="a JSON Patch (RFC 6902) in place of NAME=VALUE"
    )
    parser.add_argument(
        "--expect", metavar="N", type=int, help="only if they have not been changed since change N"
    )
    parser.add_argument("--scope", metavar="NODE", default="", help=SCOPE_HELP)


def get(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.settings import GetSettings

    with client() as daemon:
        view = daemon.call("settings.get", GetSettings(scope=options.scope), run_id=options.run_id)
    if options.path is not None:
        found = _at(view, options.path)
        out.print(text.json_line(found) if out.as_json else text.pretty(found))
        return exits.OK
    if out.as_json:
        out.emit(view)
        return exits.OK
    out.print(text.pretty(bytes(view.value)))
    hidden = ", and there is more that you may not read" if view.hidden else ""
    out.note(f"as after change {view.change}{hidden}")
    may = {rule.path: rule.may["human"] for rule in view.paths if rule.may.get("human")}
    for path, accesses in may.items():
        shown = text.line(path) if path else "all of it"
        less = _less_below(path, set(accesses), view.paths)
        but = f", except {text.line(', '.join(less))}" if less else ""
        out.note(f"you may {text.line(', '.join(accesses))}: {shown}{but}")
    changes = [path for path, accesses in may.items() if set(accesses) - {"read"}]
    if changes:
        example = changes[0] or "/NAME"
        of = f" --scope {text.line(view.scope)}" if view.scope else ""
        out.note(f"change it:  pwf settings change {text.line(view.run_id)} {text.line(example)}=VALUE{of}")
    return exits.OK


def _less_below(path: str, accesses: set[str], rules: tuple[PathRule, ...]) -> list[str]:
    """The paths below one that have rules of their own, by which a person may less there."""
    below = sorted(rule.path for rule in rules if rule.path.startswith(path + "/"))
    may = {rule.path: set(rule.may.get("human", ())) for rule in rules}
    less = [at for at in below if accesses - may[at]]
    return [at for at in less if not any(at.startswith(outer + "/") for outer in less)]


def change(options: argparse.Namespace, out: Out) -> int:
    import msgspec

    from pwf.cli.typed import json_argument
    from pwf.protocol.settings import ChangeSettings
    from pwf.values import canonical

    if (options.patch is None) == (not options.set):
        raise UsageError(
            "say what to change: NAME=VALUE, or --patch", hint="pwf settings change @last workers=4"
        )
    if options.patch is None:
        patch: Any = [_operation(word) for word in options.set]
    else:
        patch = json_argument(options.patch, "the patch")
    payload = ChangeSettings(
        patch=msgspec.Raw(canonical(patch, what="the patch")),
        expected_change=options.expect,
        scope=options.scope,
    )
    with client() as daemon:
        reply = daemon.exchange("settings.change", payload, run_id=options.run_id)
    if out.as_json:
        out.emit_reply(reply)
        return exits.OK
    before = " (they were so already)" if reply.outcome == "adopted" else ""
    out.print(f"settings of {text.line(reply.result.run_id)}: change {reply.result.change}{before}")
    return exits.OK


def _operation(word: str) -> dict[str, Any]:
    from pwf.errors import PwfError
    from pwf.values import parse

    path, found, typed = word.partition("=")
    if not found or not path:
        raise UsageError(f"{word!r} is no NAME=VALUE", hint="workers=4, or /limits/cpu=2")
    try:
        value: Any = parse(typed.encode(), what="the value")
    except PwfError:
        value = typed
    escaped = path if path.startswith("/") else "/" + path.replace("~", "~0")
    return {"op": "add", "path": escaped, "value": value}


def _at(view: SettingsView, path: str) -> bytes:
    import jsonpointer

    from pwf.errors import NotFound
    from pwf.values import canonical, parse

    pointer = path if path.startswith("/") or not path else "/" + path
    try:
        return canonical(jsonpointer.resolve_pointer(parse(bytes(view.value), what="the settings"), pointer))
    except jsonpointer.JsonPointerException:
        raise NotFound(
            f"there is nothing at {path!r} in the settings, or you may not read it",
            hint=f"pwf settings get {view.run_id}",
        ) from None
