"""Writes the files of resource managers, and reconciles with a daemon that a test can script."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

from pwf.errors import Conflict, NotFound
from pwf.protocol.graph import EffectMode
from pwf.protocol.reconcile import Reconcile, Reconciled, SaidEvent
from pwf.protocol.resources import ChildView
from pwf.workflow.load import find_definition
from pwf.workflow.reconcile_port import Reserved
from pwf.workflow.reconciling import reconcile_once
from pwf.workflow.resource_manager import ResourceManager
from tests.workflow.author import inline, namespace_of, value

HEAD = """\
from pwf import *
import msgspec
class Spec(msgspec.Struct): size: int = 1
class Status(msgspec.Struct): made: int = 0; last: str | None = None
"""  # four lines: what follows begins on line 5


def load(folder: Path, text: str, *, head: str = HEAD) -> ResourceManager[Any, Any]:
    """Execute a manager's file and find its checked manager."""
    found = find_definition(namespace_of(folder, text, head=head))
    assert isinstance(found, ResourceManager)
    return found


@dataclass
class LedgerRow:
    kind: str
    request: bytes
    mode: EffectMode
    observable: bool
    status: Literal["applying", "applied", "rejected", "failed", "ambiguous", "abandoned"] = "applying"
    output: bytes = b"null"
    ref: str | None = None
    error: str | None = None
    is_observed: bool = False  # an observer was asked for


@dataclass
class FakePort:
    """A daemon's half of a reconcile in memory: it keeps the rules of the ledger, and what a crash leaves in it."""

    rows: dict[str, LedgerRow] = field(default_factory=dict)
    children: dict[str, tuple[ChildView, bytes]] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    words: dict[tuple[str, str], dict[str, object]] = field(default_factory=dict)
    removed: list[tuple[str, str]] = field(default_factory=list)

    def reserve_effect(
        self, *, key: str, kind: str, request: bytes, mode: EffectMode, observable: bool
    ) -> Reserved:
        row = self.rows.get(key)
        outside = f"resource:{key}"
        if row is None:
            self.rows[key] = LedgerRow(kind, request, mode, observable)
            return Reserved("apply", outside)
        if row.request != request:
            raise Conflict(f"effect {key!r} was asked for with another request")
        if row.status == "applied":
            return Reserved("applied", outside, output=row.output, error=row.error)
        if row.status in ("ambiguous", "abandoned"):
            return Reserved(row.status, outside)
        if row.status == "applying" and mode == "manual":
            if not observable:
                row.status = "ambiguous"
                return Reserved("ambiguous", outside)
            row.is_observed = True
            return Reserved("observe", outside)
        row.status = "applying"
        return Reserved("apply", outside)

    def settle_effect(
        self,
        *,
        key: str,
        settled: Literal["applied", "rejected", "failed", "unknown"],
        output: bytes | None = None,
        ref: str | None = None,
        error: str | None = None,
    ) -> None:
        row = self.rows[key]
        allowed = {"applied", "rejected", "unknown"} if row.mode == "manual" else {"applied", "failed"}
        assert settled in allowed, f"the ledger refuses {settled} of what is {row.mode}"
        if settled == "unknown":
            row.status = "ambiguous" if row.is_observed or not row.observable else "applying"
        else:
            row.status = settled
        row.output, row.ref, row.error = output or b"null", ref, error

    def ensure_child(self, *, request_key: str, workflow: str, input: bytes) -> ChildView:
        if request_key in self.children:
            child, first = self.children[request_key]
            if first != input:
                raise Conflict(f"child {request_key!r} was started with another input")
            return child
        child = ChildView(
            request_key=request_key, run_id=f"run-{request_key}", workflow=workflow, status="queued"
        )
        self.children[request_key] = (child, input)
        return child

    def read_secret(self, name: str) -> str:
        return self.secrets[name]

    def cancel_child(self, *, request_key: str) -> ChildView | None:
        if request_key not in self.children:
            return None
        child, first = self.children[request_key]
        self.children[request_key] = (msgspec.structs.replace(child, status="cancelled"), first)
        return self.children[request_key][0]

    def _said(self, word: str, request_key: str, key: str, said: object) -> int:
        """As which one of its kind something is said to a child: a repeat is the first one."""
        if request_key not in self.children:
            raise NotFound(f"there is no child run under {request_key!r}")
        known = self.words.setdefault((word, request_key), {})
        if known.setdefault(key, said) != said:
            raise Conflict(f"{key!r} was used for another {word}")
        return 1 + list(known).index(key)

    def change_child(self, *, request_key: str, key: str, patch: bytes, scope: str | None) -> int:
        return self._said("change", request_key, key, (patch, scope))

    def queue_for_child(self, *, request_key: str, key: str, text: str) -> str:
        number = self._said("follow_up", request_key, key, text)
        return f"{self.children[request_key][0].run_id}.follow_up.{number}"

    def remove_for_child(self, *, request_key: str, follow_up: str) -> None:
        self.removed.append((request_key, follow_up))

    def end_child(self, request_key: str, output: Any) -> None:
        """The run has completed with this output."""
        child, first = self.children[request_key]
        done = msgspec.structs.replace(child, status="completed", output=value(output))
        self.children[request_key] = (done, first)


def given(spec: object = None, status: object = None, **more: Any) -> Reconcile:
    """What the daemon tells a process that is to reconcile."""
    facts: dict[str, Any] = {"uid": "u1", "manager": "sample", "key": "k", "lease_generation": 1}
    facts |= {"generation": 1, "observed_generation": 0, "resource_version": 1}
    return Reconcile(**{**facts, "spec": value(spec or {}), "status": value(status or {}), **more})


def reconcile(
    manager: ResourceManager[Any, Any],
    message: Reconcile,
    port: FakePort | None = None,
    told: list[SaidEvent] | None = None,
) -> Reconciled:
    """One reconcile in this process."""

    def run_async(fn: Callable[..., Any], *arguments: Any) -> object:
        import trio

        return trio.run(fn, *arguments)

    return reconcile_once(
        manager,
        message,
        port or FakePort(),
        read_value=inline,
        run_async=run_async,
        mark=str.upper,
        told=[] if told is None else told,
    )
