"""pwf: durable workflows. What a workflow file imports stands here; everything else is inside.

Names are loaded when they are first used (PEP 562), so that `import pwf` costs next to nothing and short
commands load neither trio nor anyio.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # as type checkers know it, without the cost of importing typing
if TYPE_CHECKING:
    from typing import Any

    from pwf.budgets import Budget as Budget
    from pwf.errors import EffectAbandoned as EffectAbandoned
    from pwf.errors import EffectUnknown as EffectUnknown
    from pwf.errors import GraphError as GraphError
    from pwf.errors import PwfError as PwfError
    from pwf.protocol.decision_spec import Bullets as Bullets
    from pwf.protocol.decision_spec import Diff as Diff
    from pwf.protocol.decision_spec import Fields as Fields
    from pwf.protocol.decision_spec import Paragraph as Paragraph
    from pwf.protocol.decision_spec import Preformatted as Preformatted
    from pwf.protocol.decision_spec import Section as Section
    from pwf.workflow.asyncio_bridge import run_asyncio as run_asyncio
    from pwf.workflow.context import Context as Context
    from pwf.workflow.context import NotCompleted as NotCompleted
    from pwf.workflow.context import Result as Result
    from pwf.workflow.decisions import Choice as Choice
    from pwf.workflow.decisions import Chosen as Chosen
    from pwf.workflow.decisions import Presentation as Presentation
    from pwf.workflow.decisions import Text as Text
    from pwf.workflow.effects import NotApplied as NotApplied
    from pwf.workflow.effects import applied as applied
    from pwf.workflow.effects import idempotent as idempotent
    from pwf.workflow.effects import manual as manual
    from pwf.workflow.effects import not_applied as not_applied
    from pwf.workflow.effects import parts as parts
    from pwf.workflow.effects import unknown as unknown
    from pwf.workflow.nodes import Node as Node
    from pwf.workflow.nodes import Waited as Waited
    from pwf.workflow.reconcile_context import Outcome as Outcome
    from pwf.workflow.reconcile_context import ReconcileContext as ReconcileContext
    from pwf.workflow.replies import assistant_message as assistant_message
    from pwf.workflow.resource import Child as Child
    from pwf.workflow.resource import Condition as Condition
    from pwf.workflow.resource import Resource as Resource
    from pwf.workflow.resource_manager import ResourceManager as ResourceManager
    from pwf.workflow.shell import ShellResult as ShellResult
    from pwf.workflow.timing import Retry as Retry
    from pwf.workflow.timing import days as days
    from pwf.workflow.timing import hours as hours
    from pwf.workflow.timing import minutes as minutes
    from pwf.workflow.timing import seconds as seconds
    from pwf.workflow.workflow import Workflow as Workflow

    __version__: str

# fmt: off
__all__ = [  # noqa: RUF022 - grouped by what an author does with them
    # a workflow and what its functions see
    "Workflow", "Node", "Context", "Result", "ShellResult", "Waited",
    # time
    "Retry", "seconds", "minutes", "hours", "days",
    # effects
    "idempotent", "manual", "parts", "applied", "not_applied", "unknown",
    "NotApplied", "EffectAbandoned", "EffectUnknown",
    # decisions, and what a person is shown
    "Choice", "Text", "Chosen", "Presentation", "Paragraph", "Section", "Bullets", "Fields", "Preformatted", "Diff",
    # agents
    "assistant_message", "Budget",
    # resource managers
    "ResourceManager", "ReconcileContext", "Resource", "Condition", "Child", "Outcome",
    # calling other libraries
    "run_asyncio",
    # errors
    "PwfError", "GraphError", "NotCompleted",
    # this package
    "__version__",
]
# fmt: on

_HOMES = {
    "pwf.budgets": ("Budget",),
    "pwf.errors": ("EffectAbandoned", "EffectUnknown", "GraphError", "PwfError"),
    "pwf.workflow.asyncio_bridge": ("run_asyncio",),
    "pwf.workflow.context": ("Context", "NotCompleted", "Result"),
    "pwf.protocol.decision_spec": ("Bullets", "Diff", "Fields", "Paragraph", "Preformatted", "Section"),
    "pwf.workflow.decisions": ("Choice", "Chosen", "Presentation", "Text"),
    "pwf.workflow.effects": (
        "NotApplied",
        "applied",
        "idempotent",
        "manual",
        "not_applied",
        "parts",
        "unknown",
    ),
    "pwf.workflow.nodes": ("Node", "Waited"),
    "pwf.workflow.reconcile_context": ("Outcome", "ReconcileContext"),
    "pwf.workflow.resource": ("Child", "Condition", "Resource"),
    "pwf.workflow.resource_manager": ("ResourceManager",),
    "pwf.workflow.replies": ("assistant_message",),
    "pwf.workflow.shell": ("ShellResult",),
    "pwf.workflow.timing": ("Retry", "days", "hours", "minutes", "seconds"),
    "pwf.workflow.workflow": ("Workflow",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        found: Any = _version()
    elif name in _HOME_OF:
        found = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'pwf' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and seldom asked for

    try:
        return version("pwf-workflows")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
