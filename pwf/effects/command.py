"""A command that leaves a receipt, for what has no way to be asked.

Before the command begins, a file says so; after it has succeeded, its receipt does. So a command that never began is
told from one that has ended well. Of one that died in between nobody knows, unless it writes its receipt itself.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pwf.effects.durable import sync
from pwf.effects.prepared import UNTOLD, Request, tells_exit_codes
from pwf.workflow.effects import NotApplied, Observation, applied, not_applied, unknown

OUTPUT_CHARS_MAX = 16 * 1024


class CommandFailed(Exception):
    """The command ended with another exit code than 0: what it did before that, nobody knows."""


class CommandDone(msgspec.Struct, frozen=True, kw_only=True):
    """The output: the end of what the command printed, or what it wrote into its receipt itself."""

    receipt: str
    stdout: str = ""


@dataclass(frozen=True, kw_only=True)
class RunCommand(Request[CommandDone]):
    """Run `words` once; the receipt is a file in the folder `receipts`, named by the effect's key.

    The command finds the file's path in `PWF_RECEIPT` and the key in `PWF_EFFECT_KEY`. It may write the receipt itself
    (under another name, then renamed), at the moment from which it counts as done. `undone_exit_codes`: those by
    which it says that it has done nothing.
    """

    words: Sequence[str]
    receipts: str | os.PathLike[str]
    undone_exit_codes: Sequence[int] = ()
    cwd: str | os.PathLike[str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def apply(self, key: str) -> CommandDone:
        """Run it. `NotApplied` when it could not begin, or says so; another exit code leaves it unknown."""
        if not tells_exit_codes():
            raise NotApplied(f"the command {UNTOLD}")
        receipt, begun = self._receipt(key), self._begun(key)
        try:
            _write(begun, "")
        except (OSError, ValueError) as error:
            raise NotApplied(f"the folder of receipts can't be written: {error}") from error
        environment = {**os.environ, **self.env, "PWF_RECEIPT": str(receipt), "PWF_EFFECT_KEY": key}
        try:
            process = subprocess.Popen(
                list(self.words), cwd=self.cwd, env=environment, stdout=subprocess.PIPE
            )
        except (OSError, TypeError, ValueError, IndexError) as error:
            _forget(begun)
            raise NotApplied(f"the command could not be run: {error}") from error
        with process:
            printed = process.communicate()[0].decode("utf-8", "replace")[-OUTPUT_CHARS_MAX:]
        if process.returncode in self.undone_exit_codes:
            _forget(begun)
            raise NotApplied(f"{self.words[0]} did nothing: exit code {process.returncode}")
        if process.returncode:
            raise CommandFailed(f"{self.words[0]} failed: exit code {process.returncode}")
        with suppress(OSError):  # it has succeeded, also where the disk is full now
            if not _is_there(receipt):
                _write(receipt, printed)
            return self._done(receipt)
        return CommandDone(receipt=str(receipt), stdout=printed)

    def observe(self, key: str) -> Observation:
        """A receipt: it happened. Not even begun: it did not. Begun and no receipt: nobody knows."""
        receipt = self._receipt(key)
        try:
            if _is_there(receipt):
                sync(receipt)
                sync(receipt.parent)  # who wrote it may have died before that
                return applied(self._done(receipt), ref=str(receipt))
            return unknown() if _is_there(self._begun(key)) else not_applied()
        except OSError:
            return unknown()

    def _receipt(self, key: str) -> Path:
        return Path(self.receipts).absolute() / hashlib.sha256(key.encode()).hexdigest()[:32]

    def _begun(self, key: str) -> Path:
        return self._receipt(key).with_suffix(".begun")

    def _done(self, receipt: Path) -> CommandDone:
        text = receipt.read_bytes()[: 4 * OUTPUT_CHARS_MAX].decode("utf-8", "replace")
        return CommandDone(receipt=str(receipt), stdout=text)


def _write(path: Path, text: str) -> None:
    """The file has all of the text or isn't there, also after the machine has died."""
    new = path.with_suffix(".new")
    with open(new, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync(path.parent)


def _is_there(path: Path) -> bool:
    """Raises `OSError` where nobody can look; so it does when the folder itself is gone, and all marks with it."""
    try:
        os.stat(path)
    except FileNotFoundError:
        os.stat(path.parent)
        return False
    return True


def _forget(begun: Path) -> None:
    with suppress(OSError):  # left there, it makes a later death unknown, no more
        begun.unlink()
