"""What each command prints with `--json`: the one list, from which docs/json.md and docs/json.schema.json are made.

`python -m pwf.cli.json_output page > docs/json.md` and `… schema > docs/json.schema.json` write them; tests hold both
files equal to this list, and what commands print to these structs. No command imports this module.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Literal, NamedTuple

import msgspec

from pwf.client.finding import Check
from pwf.crashlab.report import Report
from pwf.protocol import decisions, effects, follow_ups, operations, resources, settings, views, web
from pwf.protocol.agents import AgentList
from pwf.protocol.channels import ChannelList, MessageLine
from pwf.protocol.follow_ups import FollowUps
from pwf.protocol.graph import WorkflowGraph
from pwf.protocol.notices import NoticeList
from pwf.protocol.operations import RunChanged, RunStarted
from pwf.protocol.sessions import SessionList
from pwf.protocol.settings import SettingsView
from pwf.protocol.transcripts import Transcript


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Started(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line of `run`. `adopted`: there was such a run, under that id or key."""

    run_id: str
    status: views.Status
    revision: int
    adopted: bool
    code_is_older: bool
    warnings: tuple[str, ...]


class Changed(RunChanged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: it was so before."""

    adopted: bool


class Restarted(RunStarted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: it was made before, and this is that run."""

    adopted: bool


class Answered(operations.Answered, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: it had this answer before."""

    adopted: bool


class Submitted(operations.Submitted, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: it was submitted before."""

    adopted: bool


class StepSubmitted(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`submit step`: the result of an agent that pwf has started."""

    verdict: Literal["accepted"]


class Decided(decisions.Decided, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: it was decided so before."""

    adopted: bool


class SettingsChanged(settings.SettingsChanged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: they were so before."""

    adopted: bool


class FollowUpChanged(follow_ups.FollowUpChanged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: it was so before."""

    adopted: bool


class DecisionLink(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`decide --link`."""

    decision_id: str
    run_id: str
    url: str


class SignInLink(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`web --link`. It works once, until then."""

    url: str
    expires_ms: int


class Waited(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """In the order in which the runs were named."""

    runs: tuple[operations.WaitResult, ...]


class Step(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`show RUN NODE`."""

    run_id: str
    node: str
    steps: tuple[views.StepView, ...]
    effects: tuple[views.EffectView, ...]


class ResourceChanged(resources.ResourceChanged, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`adopted`: it was so before."""

    adopted: bool


class Applied(resources.Applied, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`diff`: what the spec has changed, a line for each path. With `--dry-run` nothing was applied."""

    dry_run: bool
    diff: tuple[str, ...]


class ResourceExplained(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`resource explain`, and `explain MANAGER/KEY`."""

    summary: resources.ResourceSummary
    explanation: views.Explanation


class ErrorFacts(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`code` never changes its meaning; `hint` is what to type next."""

    code: str
    message: str
    hint: str | None
    details: Any = None


class CheckedFile(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either a workflow or a resource manager; neither where `error` says why."""

    file: str
    error: ErrorFacts | None
    warnings: tuple[str, ...]
    workflow: str | None
    manager: str | None
    nodes: int
    sources: tuple[str, ...] = ()
    kept: views.KeptProcesses | None = None


class CheckedFiles(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    files: tuple[CheckedFile, ...]


class DaemonStarted(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`started`: by this command."""

    pid: int
    started: bool


class DaemonStopped(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`running` is false where there was none. `applying`: effects that were still being applied."""

    stopped: bool
    running: bool = True
    pid: int | None = None
    applying: tuple[str, ...] = ()


class ServiceUnit(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `--print` `text`, else the rest. `lingers`: it goes on after a logout."""

    path: str
    text: str | None = None
    name: str | None = None
    pid: int | None = None
    lingers: bool | None = None


class ServiceRemoved(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    path: str
    removed: bool


class ServiceStatus(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`current`: the file says what would be written now. `serves`: the daemon that serves is the service's."""

    name: str
    path: str
    installed: bool
    current: bool
    enabled: bool
    active: bool
    pid: int
    daemon_pid: int
    serves: bool
    lingers: bool


class PrintedText(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of what a step has printed. `offset`: its place in the stream, in bytes."""

    attempt: int
    node: str
    visit: int
    try_: int = msgspec.field(name="try")
    stream: Literal["stdout", "stderr"]
    offset: int
    text: str


class PrintedOfReconcile(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A piece of what a reconcile has printed. `reconcile`: the generation of its lease. `offset`: in bytes."""

    reconcile: int
    at_ms: int
    stream: Literal["stdout", "stderr"]
    offset: int
    text: str


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Of the daemon's log. Each event has further fields, ids mostly."""

    at_ms: int
    level: Literal["info", "warning", "error"]
    event: str


class Restored(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`newer`: what is known of the time after the backup. `going_on`: runs by status."""

    database: str
    runs: int
    made_ms: int | None
    newest_ms: int
    going_on: dict[str, int]
    newer: tuple[str, ...]
    violations: tuple[views.Violation, ...]


class NewDatabase(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    database: str


class McpEntry(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`text` belongs into `file`, and has been put there where it was `written`."""

    host: str
    file: str
    text: str
    written: bool


class Checks(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checks: tuple[Check, ...]


class Script(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shell: Literal["bash", "zsh", "fish"]
    script: str


class Version(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pwf: str
    python: str


class ErrorLine(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """On stderr, of any command."""

    error: ErrorFacts


class ChannelSetUp(_Line, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of `channel setup`: the files that were written, and what came of the test."""

    wrote: tuple[str, ...]
    test: MessageLine


class Lines(NamedTuple):
    """The kinds of lines that a command prints, and which are when."""

    kinds: tuple[Any, ...]
    when: str = "one line"


ANY = Lines((Any,), "one line: the value itself, any JSON")

THEN_WAIT = "with `--wait` also where it has arrived"
APPLIED_WAIT = f"a line for each resource; {THEN_WAIT}"

PRINTED: dict[str, Lines] = {
    "run": Lines((Started, views.RunView), "the first when the run is stored, the second at the end"),
    "watch": Lines(
        (views.RunView, views.RunSummary), "with RUN each state as a view; without, each run that changed"
    ),
    "wait": Lines((Waited,)),
    "ls": Lines((operations.RunList,)),
    "show": Lines(
        (views.RunView, Step, WorkflowGraph, views.EventView),
        "`RUN`, `RUN NODE`, `--graph`, `--events` (a line each); `--input` and `--output` print the value itself",
    ),
    "output": ANY,
    "explain": Lines((operations.Explained, ResourceExplained), "of a run, or of a resource"),
    "events": Lines((views.EventView,), "a line for each event"),
    "pause": Lines((Changed,), "a line for each run"),
    "resume": Lines((Changed,), "a line for each run"),
    "cancel": Lines((Changed,), "a line for each run"),
    "restart": Lines((Restarted,)),
    "retry": Lines((Restarted,)),
    "fork": Lines((Restarted,)),
    "requests": Lines((operations.RequestList,)),
    "answer": Lines((Answered,)),
    "submit": Lines((Submitted, StepSubmitted), "the second for `submit step`"),
    "inbox": Lines((NoticeList,)),
    "agents": Lines((AgentList,)),
    "agent-loop": Lines((), "refused: it is for a person at a terminal"),
    "mcp install": Lines((McpEntry,)),
    "mcp serve": Lines((Any,), "messages of the protocol, a line each; also without `--json`"),
    "sessions": Lines((SessionList, Transcript), "`--transcript RUN`: what was recorded about a run"),
    "decisions": Lines((decisions.DecisionList,)),
    "decide": Lines(
        (Decided, decisions.DecisionView, decisions.DecisionList, DecisionLink),
        "`DECISION CHOICE`; `DECISION`: what is proposed; nothing: what is open; `--link`",
    ),
    "channel setup": Lines((ChannelSetUp,)),
    "channel status": Lines((ChannelList,)),
    "channel test": Lines((MessageLine,)),
    "channel reload": Lines((ChannelList,)),
    "channel recover": Lines((MessageLine,)),
    "settings get": Lines((SettingsView,), "with PATH the value itself"),
    "settings change": Lines((SettingsChanged,)),
    "follow-up queue": Lines((FollowUpChanged,)),
    "follow-up ls": Lines((FollowUps,)),
    "follow-up remove": Lines((FollowUpChanged,)),
    "effects": Lines((effects.EffectList,)),
    "effects show": Lines((effects.EffectDetail,)),
    "effects resolve": Lines((Changed,)),
    "recover": Lines((Changed,)),
    "workflows": Lines((operations.WorkflowList,)),
    "check": Lines((CheckedFiles,)),
    "graph": Lines((operations.WorkflowDescription,)),
    "resource apply": Lines((Applied, resources.ResourceSummary), APPLIED_WAIT),
    "resource ls": Lines((resources.ResourceList,)),
    "resource get": Lines((resources.ResourceView,), "`--spec` and `--status` print the value itself"),
    "resource explain": Lines((ResourceExplained,)),
    "resource watch": Lines((resources.ResourceSummary,), "a line for each change"),
    "resource logs": Lines((PrintedOfReconcile,), "a line for each piece"),
    "resource events": Lines((views.EventView,), "a line for each event"),
    "resource reconcile": Lines((ResourceChanged, resources.ResourceSummary), THEN_WAIT),
    "resource delete": Lines((ResourceChanged, resources.ResourceSummary), THEN_WAIT),
    "resource pause": Lines((ResourceChanged,)),
    "resource resume": Lines((ResourceChanged,)),
    "managers": Lines((resources.ManagerList, operations.WorkflowDescription), "with MANAGER that one"),
    "crashlab": Lines((Report,)),
    "daemon": Lines((LogRecord,), "its log, a record a line, on stderr; also without `--json`"),
    "start": Lines((DaemonStarted,)),
    "stop": Lines((DaemonStopped,)),
    "web": Lines((SignInLink, web.Left), "`--link`; `--sign-out`"),
    "service install": Lines((ServiceUnit,)),
    "service uninstall": Lines((ServiceRemoved,)),
    "service status": Lines((ServiceStatus,)),
    "logs": Lines(
        (PrintedText, LogRecord), "with RUN a line for each piece; without, a record of the log a line"
    ),
    "status": Lines((operations.DaemonStatus,)),
    "state status": Lines((operations.StateStatus,)),
    "state verify": Lines((operations.VerifyResult,)),
    "state backup": Lines((operations.BackupResult,)),
    "state restore": Lines((Restored,)),
    "state new": Lines((NewDatabase,)),
    "state prune": Lines((operations.PruneResult,)),
    "doctor": Lines((Checks,)),
    "completion": Lines((Script,)),
    "version": Lines((Version,)),
}


def schema() -> dict[str, Any]:
    """`x-commands` has a schema for a line of each command, `x-error` that of an error on stderr (draft 2020-12)."""
    kinds = [ErrorLine, *(kind for lines in PRINTED.values() for kind in lines.kinds)]
    types = [kind for kind in dict.fromkeys(kinds) if _is_struct(kind)]
    references, definitions = msgspec.json.schema_components(
        types, schema_hook=lambda _: {}, ref_template="#/$defs/{name}"
    )
    found = dict(zip(types, references, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What pwf prints with --json",
        "x-error": found[ErrorLine],
        "x-commands": {
            command: {"anyOf": [found.get(kind, {}) for kind in lines.kinds]}
            for command, lines in PRINTED.items()
        },
        "$defs": definitions,
    }


def schema_text() -> str:
    """The text of docs/json.schema.json."""
    return msgspec.json.format(msgspec.json.encode(schema(), order="sorted"), indent=2).decode() + "\n"


def page() -> str:
    """The text of docs/json.md."""
    rows = "\n".join(
        f"| `{command}` | {', '.join(map(_named, lines.kinds))} | {lines.when} |"
        for command, lines in PRINTED.items()
    )
    own = [kind for lines in PRINTED.values() for kind in lines.kinds if _is_own(kind)]
    facts = "\n".join(_facts(kind) for kind in dict.fromkeys([*own, CheckedFile, ErrorLine, ErrorFacts]))
    return PAGE.replace("@ROWS@", rows).replace("@OWN@", facts)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _is_own(kind: Any) -> bool:
    return _is_struct(kind) and kind.__module__ == __name__


def _named(kind: Any) -> str:
    return f"`{kind.__name__}`" if _is_struct(kind) else "any JSON"


def _facts(kind: type[msgspec.Struct]) -> str:
    fields = ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(kind))
    # A docstring that msgspec has made says nothing that the fields don't.
    own = kind.__dict__.get("__doc__") or ""
    about = "" if own.startswith(f"{kind.__name__}(") else " ".join(own.split())
    return f"| `{kind.__name__}` | {fields} | {re.sub(r'[|]', '/', about)} |"


PAGE = """# JSON for programs

Every command takes `--json`. What it prints is listed here, and [json.schema.json](json.schema.json) has a JSON Schema
for each: `x-commands` → the command's name → the schema of one line. Tests hold what commands print to these schemas.
Fields are added; none is removed, or changes its meaning, without a line in the CHANGELOG. So a program should pass
over what it does not know.

1. One object is one line of stdout. Values are inside it as `{"json": …}`, or by `digest` where they have more than
   4 KiB: `pwf output RUN` prints them whole.
2. Times end in `_ms` and count from 1970. Ids are texts.
3. An error is one line of stderr, `{"error": {"code", "message", "hint"}}`, and the exit code says which kind it is
   ([the table](operations.md#exit-codes)). A run that fails is no error: its view says so, and the exit code is 1.
4. Control characters come as JSON escapes, and a line is never broken.

Picking is left to `jq`:

```sh
id=$(pwf run release --input @release.json --detach --json | jq -r .run_id)
pwf wait "$id" --json | jq -r '.runs[0].summary.status'
pwf output "$id" --json | jq .version
pwf ls --status failed --since 1d --json | jq -r '.runs[] | [.run_id, .reason] | @tsv'
pwf requests --json | jq -r '.requests[].request_id'
pwf ls --status waiting --json | jq -r '.runs[].run_id' | xargs pwf cancel
```

## Commands

| command | lines | when |
| --- | --- | --- |
@ROWS@

## Objects that only commands print

The others are those of the protocol ([protocol.schema.json](protocol.schema.json)).

| object | fields | |
| --- | --- | --- |
@OWN@
"""


if __name__ == "__main__":
    sys.stdout.write(page() if sys.argv[1:] == ["page"] else schema_text())
