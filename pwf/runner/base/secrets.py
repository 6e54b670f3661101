"""The secrets that a run's steps or a manager ask for, and what is kept without them.

Owns the values in this process, in memory alone. Promises: what the engine and the steps hand out to be kept has `***`
in place of each; a value is asked for once in a process.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pwf.errors import Rejected
from pwf.protocol.masking import Masks
from pwf.protocol.survivors import Survivor, without
from pwf.runner.base.failure import error_without
from pwf.runner.base.steps import End, Ended, Question
from pwf.runner.base.wire import ValueReader


class Secrets:
    """Of one process. `declared`: those of its workflow, or of its manager (`of`: as what that is written)."""

    def __init__(self, values: ValueReader, declared: Collection[str], of: str = "Workflow") -> None:
        self._of = of
        self._values = values
        self._declared = declared
        self._found: dict[str, str] = {}
        self.masks = Masks()

    def get(self, name: str) -> str:
        """The value. Raises `Rejected` for one that is not declared, `SecretMissing` where it can't be had."""
        if name not in self._declared:
            raise Rejected(
                f"the {self._of} does not declare the secret {name!r:.80}",
                hint=f"{self._of}(…, secrets=[{name!r:.80}])",
            )
        if name not in self._found:
            value = self._values.secret(name)
            self.masks.add(value)  # before any code has it
            self._found[name] = value
        return self._found[name]

    def without(self, end: End) -> End:
        """How a step ended, as it may be kept."""
        if not self.masks:
            return end
        if isinstance(end, Question):
            subject = None if end.subject is None else self.masks.json(end.subject)
            return replace(end, prompt=self.masks.json(end.prompt), subject=subject)
        if not isinstance(end, Ended):
            return end
        return replace(
            end,
            output=None if end.output is None else self.masks.json(end.output),
            error=None if end.error is None else error_without(end.error, self.masks),
            effect_ref=None if end.effect_ref is None else self.masks.text(end.effect_ref),
        )

    def without_in(self, survivors: tuple[Survivor, ...]) -> tuple[Survivor, ...]:
        """Processes, as they may be named."""
        return without(survivors, self.masks)
