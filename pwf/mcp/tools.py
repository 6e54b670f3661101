"""The tools, one row each: who may use it, what it takes, and what it asks of the daemon.

Owns the table `TOOLS`. Promises: each call that changes something has a key of its session and its arguments, so a
repeat after an answer that was lost adopts what the first one did. Never offers what only a person may say.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

import anyio
import msgspec

from pwf.client.aio import Client
from pwf.client.origin import origin
from pwf.client.session import Step
from pwf.mcp import arguments as takes
from pwf.mcp.session import HostSession
from pwf.protocol.kinds import REQUESTS
from pwf.protocol.operations import StartPayload, WorkflowListPayload
from pwf.protocol.replies import UpdatePayload
from pwf.protocol.runner import Value
from pwf.protocol.views import ENDED, RequestView, RunSummary
from pwf.values import canonical, parse

Grant = Literal["worker", "operator"]

SHOWN_BYTES_MAX = 64 * 1024  # of an output: a model reads all of it
AGAIN = "nothing new yet; call this tool again"


class Said(NamedTuple):
    """What a tool answers: `data` for programs, `text` for the model; None: the data as JSON."""

    data: dict[str, Any]
    text: str | None = None


class Host:
    """One MCP host: its session, whose client it reads with, and how long a call of it may last. `project`: a client
    that may do what any program of the user's may; None under the grant of a worker.
    """

    def __init__(self, own: HostSession, project: Client | None, *, wait_s_max: float) -> None:
        self.own = own
        self.client = own.session.client if project is None else project
        self.wait_s_max = wait_s_max

    def key(self, *parts: object) -> str:
        """The same for the same call of the same session."""
        text = canonical([self.own.session_id, *(str(part) for part in parts)])
        return "mcp:" + hashlib.sha256(text).hexdigest()[:40]

    def patience_s(self, wait_s: int) -> float:
        return min(float(wait_s), self.wait_s_max)


class Tool(NamedTuple):
    """`changes` is False where a host need not ask its person."""

    grant: Grant
    does: str
    takes: type[takes.Arguments]
    call: Callable[[Host, Any], Awaitable[Said]]
    changes: bool = False


# --- what a worker may do ---------------------------------------------------------------------------------------


async def my_step(host: Host, given: takes.MyStep) -> Said:
    found = await host.own.next(host.patience_s(given.wait_s))
    if found is None:
        return Said({"state": "nothing", "ask_again": True}, f"There is no step for you: {AGAIN}.")
    if found.request is None:
        said = await _told(host, found)
        await host.own.told(found)
        return said
    return await _step(found, found.request)


async def submit(host: Host, given: takes.Submit) -> Said:
    value = takes.result_of(given, text=given.text)
    raw = canonical(value, what="the value")
    key = host.key("submit", given.request, given.revision, raw.decode())
    with anyio.move_on_after(host.wait_s_max):
        done = await host.own.submit(
            given.request, given.revision, value, key, reply=isinstance(given.text, str)
        )
        found = {"verdict": done.verdict, "run": done.run_id, "status": done.status}
        if done.verdict == "rejected":
            why = {**found, "reason": done.reason}
            return Said(why, f"Rejected: {done.reason}\nCorrect it, and submit again.")
        if done.verdict == "accepted":
            return Said(found, "Accepted. Call my_step for what comes next.")
    judged = {"verdict": "validating", "ask_again": True}
    return Said(
        judged, "It is still being judged. Call submit again with the same arguments for the verdict."
    )


async def update(host: Host, given: takes.Update) -> Said:
    return await _noted(host, given, "progress", {"label": given.text})


async def ask(host: Host, given: takes.Ask) -> Said:
    await _noted(host, given, "question", {"question": given.question})
    return Said(
        {"shown": True}, "People see the question with the run. Nobody is bound to answer; go on if you can."
    )


async def _noted(host: Host, given: takes.Update | takes.Ask, kind: str, data: dict[str, Any]) -> Said:
    payload = UpdatePayload(
        request_id=given.request,
        data=msgspec.Raw(canonical(data)),
        kind=kind,
        key="work",
        revision=given.revision,
    )
    noting = host.own.noting(kind, (given.request, given.revision, data))
    key = host.key("note", given.request, given.revision, kind, noting)
    done = await host.own.once(key, lambda key: host.own.session.call("request.update", payload, key=key))
    return Said({"run": done.run_id, "event": done.revision})


async def status(host: Host, given: takes.Status) -> Said:
    found = await host.client.wait(given.run, until="parked", timeout_s=host.patience_s(given.wait_s))
    data = _summary(found.summary)
    if found.summary.status in ENDED and found.output is not None:
        data |= await _shown(host.client, found.summary.run_id, "output", found.output)
    if not found.done:
        data["ask_again"] = True
    return Said(data)


async def explain(host: Host, given: takes.OfRun) -> Said:
    found = await host.client.call("run.status", run_id=given.run)
    why = found.explanation
    return Said(
        {
            **_summary(found.summary),
            "code": why.code,
            "why": why.reason,
            "changes_when": why.changes_when,
        }
    )


# --- what an operator may do, too -------------------------------------------------------------------------------


async def workflows(host: Host, given: takes.Arguments) -> Said:
    found = await host.client.call("workflow.list", WorkflowListPayload(origin=await _seen_from(host)))
    lines = [{"name": line.name, "does": line.doc, "error": line.error} for line in found.workflows]
    return Said({"project": found.root, "workflows": lines})


async def runs(host: Host, given: takes.Arguments) -> Said:
    return Said({"runs": [_summary(run) for run in await host.client.list(limit=20)]})


async def start(host: Host, given: takes.Start) -> Said:
    payload = StartPayload(
        workflow=given.workflow,
        origin=await _seen_from(host, given.workflow),
        input=msgspec.Raw(canonical(given.input, what="input")),
        session=host.own.session_id,
    )
    key = host.key("start", given.workflow, canonical(given.input).decode(), given.key)
    reply = await host.own.once(key, lambda key: host.client.begin(payload, key=key))
    return _began(reply.result.run_id, reply.result.status, adopted=reply.outcome == "adopted")


async def restart(host: Host, given: takes.Restart) -> Said:
    seen = (await host.client.call("run.status", run_id=given.run)).summary
    key = host.key("restart", seen.run_id, seen.revision, given.key)
    reply = await host.own.once(
        key,
        lambda key: host.client.exchange(
            "run.restart", run_id=seen.run_id, expected_revision=seen.revision, key=key
        ),
    )
    return _began(reply.result.run_id, reply.result.status, adopted=reply.outcome == "adopted")


async def pause(host: Host, given: takes.Pause) -> Said:
    return _changed(await host.client.pause(given.run, now=given.now))


async def resume(host: Host, given: takes.OfRun) -> Said:
    return _changed(await host.client.resume(given.run))


async def cancel(host: Host, given: takes.Cancel) -> Said:
    return _changed(await host.client.cancel(given.run, given.reason or None))


TOOLS: dict[str, Tool] = {
    "my_step": Tool(
        "worker",
        "The step of a workflow that is yours to do now: what to do, and what the result must look like. Call it "
        "first, and again after each step.",
        takes.MyStep,
        my_step,
    ),
    "submit": Tool(
        "worker",
        "Hand in the result of your step. A result that is rejected comes back with the reason: correct it, and "
        "submit again.",
        takes.Submit,
        submit,
        changes=True,
    ),
    "update": Tool(
        "worker",
        "Say in a line how your step goes. People see it with the run.",
        takes.Update,
        update,
        changes=True,
    ),
    "ask": Tool(
        "worker",
        "Put a question about your step before the people who look at the run. It decides nothing.",
        takes.Ask,
        ask,
        changes=True,
    ),
    "status": Tool("worker", "Where a run stands, and its output once it has ended.", takes.Status, status),
    "explain": Tool("worker", "Why a run is where it is, and what changes that.", takes.OfRun, explain),
    "workflows": Tool("operator", "The workflows that can be started here.", takes.Arguments, workflows),
    "runs": Tool("operator", "The newest runs.", takes.Arguments, runs),
    "start": Tool(
        "operator",
        "Start a workflow. Its agent steps then come to you by my_step.",
        takes.Start,
        start,
        changes=True,
    ),
    "pause": Tool("operator", "Hold a run at its next boundary.", takes.Pause, pause, changes=True),
    "resume": Tool("operator", "Let a run that was paused go on.", takes.OfRun, resume, changes=True),
    "cancel": Tool("operator", "End a run.", takes.Cancel, cancel, changes=True),
    "restart": Tool(
        "operator", "Start a run that has ended anew, from its input.", takes.Restart, restart, changes=True
    ),
}


def offered(grant: Grant) -> dict[str, Tool]:
    """The tools of a grant: an operator has those of a worker, too."""
    return {name: tool for name, tool in TOOLS.items() if tool.grant in ("worker", grant)}


# --- inside -----------------------------------------------------------------------------------------------------


async def _step(step: Step, asked: RequestView) -> Said:
    words = await step.prompt()
    schema = canonical(asked.schema or {}).decode()
    wants = f"a result that fits this JSON Schema:\n{schema}"
    if REQUESTS[asked.kind].reply:
        wants = "text, your reply as people shall read it"
    data = {
        "state": "step",
        "request": asked.request_id,
        "revision": step.message.request_revision,
        "run": asked.run_id,
        "workflow": asked.workflow,
        "node": asked.node,
        "prompt": words,
        "returns": asked.schema,
    }
    return Said(
        data,
        f"Step {asked.node} of {asked.workflow} (run {asked.run_id}):\n\n{words}\n\n"
        f"When it is done, call submit with request={asked.request_id!r}, revision={step.message.request_revision} "
        f"and {wants}",
    )


async def _told(host: Host, step: Step) -> Said:
    """What asks for nothing: how a run ended, or words for the session."""
    message = step.message
    if message.end is None:
        return Said({"state": "told", "run": message.run_id, "text": await step.prompt()})
    end = message.end
    found = {"state": "ended", "run": message.run_id, "workflow": end.workflow, "status": end.status}
    if end.reason is not None:
        found["reason"] = end.reason
    if end.output is not None:
        found |= await _shown(host.own.session.client, message.run_id, "output", end.output)
    return Said(found)


async def _seen_from(host: Host, workflow: str = "") -> Any:
    return await anyio.to_thread.run_sync(origin, host.client.places, workflow)


def _summary(run: RunSummary) -> dict[str, Any]:
    found = {
        "run": run.run_id,
        "workflow": run.workflow,
        "title": run.title,
        "status": run.status,
        "node": run.node,
        "reason": run.reason,
    }
    return {name: value for name, value in found.items() if value is not None}


async def _shown(client: Client, run_id: str, name: str, value: Value) -> dict[str, Any]:
    data = await client.read_value(run_id, value)
    if len(data) > SHOWN_BYTES_MAX:
        return {f"{name}_bytes": len(data), "note": f"the {name} is too large to be shown here"}
    return {name: parse(data)}


def _began(run_id: str, status: str, *, adopted: bool) -> Said:
    data: dict[str, Any] = {"run": run_id, "status": status, "adopted": adopted}
    if adopted:
        data["note"] = "this was asked before, and is that run; another key begins another"
    return Said(data)


def _changed(changed: Any) -> Said:
    found = {"run": changed.run_id, "status": changed.status}
    return Said(found if changed.note is None else {**found, "note": changed.note})
