"""The one reason why a managed resource is where it is, when that changes, and what can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from pwf.protocol.resources import ResourceSummary
from pwf.protocol.views import Explanation
from pwf.store.explain import Load
from pwf.store.resource_state import Resource

#: hold -> (reason, when it changes, command words)
_HOLDS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "paused": ("it is paused", "when it is resumed", ("resume", "delete")),
    "effect_ambiguous": (
        "nobody knows whether an outside effect of it happened",
        "when a person has found out and says so, or applies a new spec",
        ("effects", "reconcile"),
    ),
    "restored": (
        "its database was copied or restored, and what it did after that is unknown",
        "when somebody has looked and resumes it",
        ("get", "resume", "delete"),
    ),
    "process_unreaped": (
        "processes of its last reconcile could not be shown dead",
        "when they are gone and it is resumed",
        ("doctor", "resume"),
    ),
    "broken": ("its row can not be handled", "when that is mended and it is resumed", ("verify", "resume")),
}

_COMMANDS = {
    "resume": "pwf resource resume {name}",
    "reconcile": "pwf resource reconcile {name}",
    "delete": "pwf resource delete {name}",
    "abandon": "pwf resource delete {name} --abandon",
    "get": "pwf resource get {name}",
    "effects": "pwf effects --ambiguous",
    "doctor": "pwf doctor",
    "verify": "pwf state verify",
    "managers": "pwf managers",
    "logs": "pwf logs",
}


def explain_resource(resource: Resource, summary: ResourceSummary, load: Load, now_ms: int) -> Explanation:
    """From its rows and from what the scheduler knows."""

    def said(code: str, reason: str, changes_when: str, *words: str, at_ms: int | None = None) -> Explanation:
        return Explanation(
            code=code,
            reason=reason,
            changes_when=changes_when,
            changes_at_ms=at_ms,
            commands=tuple(_COMMANDS[word].format(name=shlex.quote(resource.label)) for word in words),
        )

    if resource.gone_wall_ms is not None:
        return said("gone", "it has been deleted", "never: what is applied anew is another one")
    if resource.is_live:
        what = "finalizes it" if resource.deleting_wall_ms is not None else "reconciles it"
        return said("reconciling", f"its manager {what} now", "when that ends")
    if summary.hold is not None:
        reason, when, words = _HOLDS[summary.hold]
        if resource.hold_detail and summary.hold not in ("restored",):
            reason = f"{reason}: {resource.hold_detail}"
        return said(summary.hold, reason, when, *words)
    if resource.state == "settled" and summary.due_ms is not None:
        reason = "its manager had nothing to do, and looks again from time to time"
        return said("settled", reason, "then, or when something wakes it", "reconcile", at_ms=summary.due_ms)
    if resource.queue_state is not None:
        return _due(resource, summary, load, now_ms, said)
    if resource.deleting_wall_ms is not None:
        left = ", ".join(resource.finalizers) or "its children or effects"
        return said("deleting", f"it is to go, and waits for {left}", "when these have ended", "abandon")
    return said("settled", "its manager has nothing to do", "with a new spec, or whatever else wakes it")


def _due(
    resource: Resource, summary: ResourceSummary, load: Load, now_ms: int, said: Callable[..., Explanation]
) -> Explanation:
    due_ms = summary.due_ms or now_ms
    words = ["reconcile"] if due_ms > now_ms else []
    if resource.failures:
        why = f"{summary.reason}: {summary.message}" if summary.message else summary.reason
        if summary.reason in ("ManagerMissing", "ManagerBroken"):
            words.append("managers")
        if resource.deleting_wall_ms is not None:
            words.append("abandon")
        text = f"its last {_times(resource.failures)} failed ({why}), and it is tried again"
        return said("retry_later", text, "when its back-off is over", *words, "logs", at_ms=due_ms)
    if due_ms > now_ms:
        return said("due_later", "it is to be reconciled later", "at that time", *words, at_ms=due_ms)
    if load.stopped is not None:
        return said("daemon_degraded", f"nothing is admitted: {load.stopped}", "when that is over")
    if load.used >= load.capacity:
        return said(
            "capacity",
            f"all {load.capacity} runners are used",
            "when one is free, or after five seconds beyond the capacity",
        )
    return said("queued", "it is due, and about to be reconciled", "at once")


def _times(failures: int) -> str:
    return "reconcile" if failures == 1 else f"{failures} reconciles"
