"""What a reconcile may ask of the daemon while it runs.

Promises: nothing here knows how a message travels. The process that reconciles has one `ReconcilePort`, a test another.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from pwf.protocol.graph import EffectMode
from pwf.protocol.resources import ChildView


class Reserved(NamedTuple):
    """How an effect stands. `apply`: it is on disk, go on. `observe`: an earlier try may have happened.
    `abandoned`: a person gave it up, and it may have happened.

    `effect_key`: what outside systems get, the same in every try of this occasion. `output` is JSON. `applied` with an
    `error`: it happened, and its output could not be kept.
    """

    state: Literal["apply", "observe", "applied", "abandoned", "ambiguous"]
    effect_key: str
    output: bytes = b"null"
    error: str | None = None


class ReconcilePort(Protocol):
    """The daemon, as far as a reconcile may speak to it. Each call blocks until its answer is on disk.

    Raises `Conflict` where the key was used for another request or input, and other `PwfError` of refusals.
    """

    def reserve_effect(
        self, *, key: str, kind: str, request: bytes, mode: EffectMode, observable: bool
    ) -> Reserved:
        """Commit that the effect is about to be applied, or say what became of it before."""
        ...

    def settle_effect(
        self,
        *,
        key: str,
        settled: Literal["applied", "rejected", "failed", "unknown"],
        output: bytes | None = None,
        ref: str | None = None,
        error: str | None = None,
    ) -> None:
        """Commit what became of it. `failed`: of an idempotent effect, which may be applied again.

        `applied` with an `error`: its output could not be kept.
        """
        ...

    def ensure_child(self, *, request_key: str, workflow: str, input: bytes) -> ChildView:
        """The child run that was started under this key; it is started where there is none."""
        ...

    def read_secret(self, name: str) -> str:
        """The value of a secret that the manager declares."""
        ...

    def cancel_child(self, *, request_key: str) -> ChildView | None:
        """Ask for the end of the child run under this key; None where there is none."""
        ...

    def change_child(self, *, request_key: str, key: str, patch: bytes, scope: str | None) -> int:
        """Change settings of a child by a JSON Patch, once under `key`; the number of the change."""
        ...

    def queue_for_child(self, *, request_key: str, key: str, text: str) -> str:
        """Queue a follow-up for a child's session, once under `key`; its id."""
        ...

    def remove_for_child(self, *, request_key: str, follow_up: str) -> None:
        """Remove a follow-up that was queued here."""
        ...
