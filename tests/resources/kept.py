"""One resource of an example manager, kept as the daemon keeps it; reconciled here or in a process that is killed."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import msgspec

from pwf.protocol.merge_patch import apply
from pwf.protocol.reconcile import Reconciled
from pwf.protocol.resources import Condition
from pwf.workflow.load import find_definition
from pwf.workflow.resource_manager import ResourceManager
from tests.workflow.author import executed
from tests.workflow.manager_author import FakePort, given, reconcile

EXAMPLES = Path(__file__).parents[2] / "examples" / "resources"
REQUEUES_MAX = 50
#: What changes the world: before each of these a process may be killed.
_DEEDS = frozenset({"subprocess.Popen", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"})


def load(name: str) -> ResourceManager[Any, Any]:
    found = find_definition(executed(EXAMPLES / f"{name}.py"))
    assert isinstance(found, ResourceManager)
    return found


class Kept:
    """The state of one resource: what a reconcile returns is taken over whole, as one commit does it."""

    def __init__(
        self,
        manager: str | ResourceManager[Any, Any],
        spec: dict[str, Any],
        *,
        uid: str = "u1",
        port: FakePort | None = None,
    ) -> None:
        self.manager = load(manager) if isinstance(manager, str) else manager
        self.port = port or FakePort()
        self.uid = uid
        self.spec = spec
        self.generation = 1
        facts = self.manager.to_graph().manager
        assert facts is not None
        self.status: dict[str, Any] = msgspec.json.decode(facts.initial_status)
        self.conditions: dict[str, Condition] = {}
        self.finalizers: tuple[str, ...] = ()
        self.deleting = False
        self.events: list[str] = []

    def change(self, **spec: Any) -> None:
        """Somebody applies another spec."""
        self.spec = {**self.spec, **spec}
        self.generation += 1

    def reconcile(self) -> Reconciled:
        """One reconcile in this process, which may be stopped by an exception."""
        said = self._reconcile()
        self._take(said)
        return said

    def settle(self) -> Reconciled:
        """Reconcile until it is settled, however often it asks for more."""
        for _ in range(REQUEUES_MAX):
            said = self.reconcile()
            if said.outcome == "settled":
                return said
        raise AssertionError(f"it never settles: {said}")

    def killed_before(self, number: int) -> bool:
        """Reconcile in a process that is killed before its nth deed. False: it did fewer, and its result was lost."""
        pid = os.fork()
        if pid == 0:
            try:
                sys.addaudithook(_dies_before(number))
                self._reconcile()
                os._exit(0)
            except BaseException:  # noqa: BLE001 - it is shown, and the parent fails
                traceback.print_exc()
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
        return os.WIFSIGNALED(status)

    @property
    def ready(self) -> tuple[str, str]:
        """Status and reason of the condition that lists show."""
        found = self.conditions.get("Ready")
        return ("Unknown", "") if found is None else (found.status, found.reason)

    def _reconcile(self) -> Reconciled:
        message = given(
            self.spec,
            self.status,
            uid=self.uid,
            generation=self.generation,
            finalizers=self.finalizers,
            conditions=tuple(self.conditions.values()),
            deleting=self.deleting,
            children=tuple(child for child, _ in self.port.children.values()),
        )
        return reconcile(self.manager, message, self.port)

    def _take(self, said: Reconciled) -> None:
        self.status = apply(self.status, msgspec.json.decode(said.status))
        self.finalizers = self.finalizers if said.finalizers is None else said.finalizers
        for one in said.conditions:
            self.conditions[one.type] = Condition(
                type=one.type, status=one.status, reason=one.reason, message=one.message
            )
        self.events += [event.reason for event in said.events]


def _dies_before(number: int) -> Any:
    left = number

    def hook(event: str, arguments: Any) -> None:
        nonlocal left
        if event in _DEEDS:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook
