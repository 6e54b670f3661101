"""Says what is wrong with a workflow's file: one text with file and line, and what to type or change next."""

from __future__ import annotations

import linecache
from dataclasses import dataclass

from pwf.errors import GraphError, NoWorkflow, PwfError, by_code
from pwf.runner.load.tree import ProjectTree
from pwf.values import shortened

MESSAGE_LENGTH_MAX = 8_000


@dataclass(frozen=True)
class Fault:
    """Why a file gives no workflow. `code`: load_failed, graph_error or no_workflow."""

    code: str
    message: str
    hint: str | None = None

    def exception(self) -> PwfError:
        """The fault as the exception that its code stands for."""
        return by_code(self.code)(self.message, hint=self.hint)


def load_fault(error: BaseException, path: str, tree: ProjectTree) -> Fault:
    """Describe what happened while the workflow's file was loaded. `path` is that file."""
    if isinstance(error, NoWorkflow):
        return Fault(error.code, error.message, error.hint)
    if isinstance(error, GraphError):
        return Fault("graph_error", _located(error.message, error, path, tree), error.hint)
    if isinstance(error, PwfError):
        return Fault("load_failed", _located(error.message, error, path, tree), error.hint)
    if isinstance(error, SyntaxError) and tree.holds(error.filename or path):
        return Fault("load_failed", _syntax_message(error, path))
    where = _where(error, path, tree)
    return Fault("load_failed", shortened(f"{where}{_summary(error)}", MESSAGE_LENGTH_MAX), _hint(error))


def _located(message: str, error: BaseException, path: str, tree: ProjectTree) -> str:
    """The message, led by the line that it came from unless it names a line of a project's file itself."""
    place = _last_user_line(error, tree)
    if place is None or f"{path}:" in message or f"{place[0]}:" in message:
        return message if path in message or place is not None else f"{path}: {message}"
    return f"{place[0]}:{place[1]}: {message}"


def _syntax_message(error: SyntaxError, path: str) -> str:
    lines = [f"{error.filename or path}:{error.lineno or 1}: {type(error).__name__}: {error.msg}"]
    text = (error.text or "").rstrip("\n")
    if text:
        stripped = text.lstrip()
        lines.append(f"    {stripped}")
        column = (error.offset or 0) - (len(text) - len(stripped))
        if column > 0:
            lines.append("    " + " " * (column - 1) + "^")
    return shortened("\n".join(lines), MESSAGE_LENGTH_MAX)


def _where(error: BaseException, path: str, tree: ProjectTree) -> str:
    place = _last_user_line(error, tree)
    if place is None:
        return f"{path}: "
    file, line = place
    text = linecache.getline(file, line).strip()
    return f"{file}:{line}: {text}\n    " if text else f"{file}:{line}: "


def _last_user_line(error: BaseException, tree: ProjectTree) -> tuple[str, int] | None:
    """File and line of the innermost frame that is the project's own."""
    found = None
    at = error.__traceback__
    while at is not None:
        file = at.tb_frame.f_code.co_filename
        if tree.holds(file):
            found = (file, at.tb_lineno)
        at = at.tb_next
    return found


def _summary(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return f"the file ends the process while it loads: SystemExit: {error.code}"
    try:
        text = str(error)
    except Exception as second:  # noqa: BLE001 - user code: an exception may fail at being shown
        text = f"(its text can't be made: {type(second).__name__})"
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def _hint(error: BaseException) -> str | None:
    if isinstance(error, SystemExit):
        return 'put what must not run on import under: if __name__ == "__main__":'
    if isinstance(error, ImportError) and "no known parent package" in str(error):
        return "the workflow's file is in no package: import modules beside it by their plain name"
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        return (
            f"put {top}.py beside the workflow's file or into the project's root, or install the package "
            f"that has {top!r} into the run's interpreter"
        )
    return None
