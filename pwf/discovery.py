"""Finds what a command refers to: the project, the workflow's file, the interpreter, and the environment of a run.

Looks at names, folders and texts only; imports and runs nothing of a project, so that the daemon and every
client may use it. What a file really holds is the resolver's answer (`pwf.runner.load.resolve`).
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pwf.errors import EnvironmentMissing, InvalidArgument, LoadFailed, NotFound
from pwf.protocol.runner import MARKER_VARIABLE
from pwf.watch import changed_sources, definition_id, same_code, still_valid, verify_sources

Scope = Literal["project", "user", "builtin", "path"]
Sort = Literal["workflows", "resources"]  # the folder's name

BUILTIN_WORKFLOWS = Path(__file__).parent / "builtin_workflows"
NAME_LENGTH_SHOWN_MAX = 200
_TEXT_BYTES_MAX = 1024 * 1024
_INSTALLED_PWF = (
    "pwf_workflows-*.dist-info",
    "pwf-workflows.egg-link",
    "__editable__.pwf_workflows-*",
    "pwf/__init__.py",
)

#: What a run takes from the client's environment, beside `LC_*`, unless the config names more. Left out on
#: purpose: PYTHON* (they would change which code runs), proxies and tokens (values are kept in the
#: database), SSH_AUTH_SOCK and the desktop's sockets (they die with the client's session, long before a run
#: may).
ALLOWED_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "VIRTUAL_ENV",
        "PWF_HOME",
    }
    | {"XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_STATE_HOME"}
    | {"XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "SSL_CERT_FILE", "SSL_CERT_DIR"}
)


class _SortFacts(NamedTuple):
    """`word`: a file that has none in it is a helper. `command`: lists them."""

    one: str
    word: re.Pattern[bytes]
    command: str


_SORTS: dict[Sort, _SortFacts] = {
    "workflows": _SortFacts("a workflow", re.compile(rb"\bWorkflow\b"), "workflows"),
    "resources": _SortFacts("a resource manager", re.compile(rb"\bResourceManager\b"), "managers"),
}


@dataclass(frozen=True)
class Found:
    """The file of a workflow or a resource manager. `name` is its stem; `root` is the project that it acts for."""

    name: str
    path: Path
    scope: Scope
    root: Path


# --- the project and its workflows
# ---------------------------------------------------------------------------


def project_root(cwd: Path) -> Path:
    """The nearest folder upward that holds `.pwf`, else the repository's root, else `cwd`; as its real path."""
    here = folder = os.path.realpath(cwd)
    repository = None
    while True:
        if os.path.isdir(os.path.join(folder, ".pwf")):
            return Path(folder)
        if repository is None and os.path.exists(os.path.join(folder, ".git")):
            repository = folder
        above = os.path.dirname(folder)
        if above == folder:
            return Path(repository or here)
        folder = above


def project_of(name_or_path: str, cwd: Path, config_dir: Path) -> Path:
    """The project that a run of it belongs to: of a file that is given by path, the one of the folder it lies in.

    Names mean what they mean in `cwd`, and so do the user's and the built-in workflows, which have no project.
    """
    if _is_path(name_or_path):
        folder = _absolute(name_or_path, cwd).parent
        real = Path(os.path.realpath(folder))
        if not any(
            real.is_relative_to(os.path.realpath(shared))
            for sort in _SORTS
            for _, shared in _shared_folders(config_dir, sort)
        ):
            return project_root(folder)
    return project_root(cwd)


def find_workflow_file(name_or_path: str, cwd: Path, config_dir: Path) -> Found:
    """The file that the text names: a path, or a name in the project's, the user's or the built-in workflows.

    `config_dir` is the folder of the user's configuration file. Raises `NotFound` with the nearest names and where
    it looked.
    """
    return _find(name_or_path, cwd, config_dir, "workflows")


def find_manager_file(name_or_path: str, cwd: Path, config_dir: Path) -> Found:
    """The file of a resource manager: a name, or a path in the project's or the user's folder of managers.

    Raises `NotFound` as `find_workflow_file` does, and `InvalidArgument` for a file that lies elsewhere.
    """
    found = _find(name_or_path, cwd, config_dir, "resources")
    folders = [folder for _, folder in _folders(found.root, config_dir, "resources")]
    if os.path.realpath(found.path.parent) not in map(os.path.realpath, folders):
        raise InvalidArgument(
            f"{found.path} lies in no folder of resource managers",
            hint=f"move it to {folders[0]}, so that everybody knows it by its name",
        )
    return found


def _find(name_or_path: str, cwd: Path, config_dir: Path, sort: Sort) -> Found:
    root = project_of(name_or_path, cwd, config_dir)
    if _is_path(name_or_path):
        path = _absolute(name_or_path, cwd)
        if fault := _path_fault(path):
            raise NotFound(
                f"{_short(name_or_path)} {fault}",
                hint=f"name {_SORTS[sort].one}'s .py file; `pwf {_SORTS[sort].command}` lists names",
            )
        return Found(path.stem, path, "path", root)
    for scope, folder in _folders(root, config_dir, sort):
        path = folder / f"{name_or_path}.py"
        if _is_name(name_or_path) and os.path.isfile(path):
            return Found(name_or_path, path, scope, root)
    raise _no_such_name(name_or_path, cwd, config_dir, root, sort)


def list_workflow_files(cwd: Path, config_dir: Path) -> list[Found]:
    """The files that can be started by name from here, sorted by name.

    A file that does not have the word `Workflow` is a helper. A name in an earlier place hides it in later
    ones. The resolver may still find that a listed file has no workflow (`no_workflow`).
    """
    return _list(cwd, config_dir, "workflows")


def list_manager_files(cwd: Path, config_dir: Path) -> list[Found]:
    """The files of the resource managers that are known here, as `list_workflow_files` finds its own."""
    return _list(cwd, config_dir, "resources")


def _list(cwd: Path, config_dir: Path, sort: Sort) -> list[Found]:
    root = project_root(cwd)
    found: dict[str, Found] = {}
    for scope, folder in _folders(root, config_dir, sort):
        for path in _python_files(folder):
            if path.stem not in found and _may_hold(path, sort):
                found[path.stem] = Found(path.stem, path, scope, root)
    return sorted(found.values(), key=lambda one: one.name)


def _folders(root: Path, config_dir: Path, sort: Sort) -> Iterator[tuple[Scope, Path]]:
    yield "project", root / ".pwf" / sort
    yield from _shared_folders(config_dir, sort)


def workflow_candidates(name: str, root: Path, config_dir: Path) -> list[Path]:
    """Where a workflow of this name would stand, in the order in which they are looked at."""
    if not _is_name(name):
        return []
    return [folder / f"{name}.py" for _, folder in _folders(root, config_dir, "workflows")]


def _shared_folders(config_dir: Path, sort: Sort) -> Iterator[tuple[Scope, Path]]:
    yield "user", config_dir / sort
    if sort == "workflows":
        yield "builtin", BUILTIN_WORKFLOWS


def _is_path(text: str) -> bool:
    return "\0" not in text and (os.sep in text or text.endswith(".py"))


def _absolute(typed: str, cwd: Path) -> Path:
    return Path(os.path.abspath(cwd / os.path.expanduser(typed)))


def _path_fault(path: Path) -> str | None:
    if os.path.isfile(path):
        return None if path.suffix == ".py" else "is not a .py file"
    return "is a folder, not a .py file" if os.path.isdir(path) else "does not exist"


def _is_name(text: str) -> bool:
    return bool(text) and os.sep not in text and "\0" not in text and not text.startswith(".")


def _short(name: str) -> str:
    return repr(name) if len(name) <= NAME_LENGTH_SHOWN_MAX else f"{name[:NAME_LENGTH_SHOWN_MAX]!r}…"


def _python_files(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise LoadFailed(
            f"the files in {folder} can not be read: {error.strerror}", hint=f"chmod u+rx {folder}"
        ) from error
    return [folder / name for name in names if name.endswith(".py") and not name.startswith((".", "__"))]


def _may_hold(path: Path, sort: Sort) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return _SORTS[sort].word.search(file.read(_TEXT_BYTES_MAX)) is not None
    except OSError:
        return True  # the resolver says what is wrong with it


def _no_such_name(name: str, cwd: Path, config_dir: Path, root: Path, sort: Sort) -> NotFound:
    known = [one.name for one in _list(cwd, config_dir, sort)]
    near = difflib.get_close_matches(name[:NAME_LENGTH_SHOWN_MAX], known, n=3)
    folders = [folder for scope, folder in _folders(root, config_dir, sort) if scope != "builtin"]
    looked = ", ".join(str(folder) for folder in folders if os.path.isdir(folder))
    hint = f"did you mean {' or '.join(map(repr, near))}? " if near else ""
    hint += f"looked in {looked}" if looked else f"make {root / '.pwf' / sort} and put its file there"
    what = _SORTS[sort].one.removeprefix("a ")
    return NotFound(f"there is no {what} named {_short(name)}", hint=hint, details={"near": near})


# --- the interpreter ---------------------------------------------------------------------------------------


def choose_interpreter(root: Path, configured: str | None, client_python: str) -> str:
    """The Python that a run of this project uses: the configured one, else the project's `.venv`, else the client's.

    The project's `.venv` counts only when pwf is installed in it. Links are kept: a virtual environment's
    python is one. A configured relative path is meant from the root. Raises `EnvironmentMissing` when the
    chosen one can't be executed.
    """
    if configured:
        chosen = os.path.join(root, os.path.expanduser(configured))
        return _executable(
            chosen, "the configured interpreter", "correct `interpreter` in the configuration file"
        )
    own = root / ".venv" / "bin" / "python"
    if own.exists() and _has_pwf(root / ".venv"):
        return _executable(str(own), "the project's interpreter", "make the project's .venv again")
    return _executable(os.path.abspath(client_python), "the client's interpreter", "install pwf again")


def _executable(path: str, what: str, hint: str) -> str:
    if not os.path.isfile(path):
        raise EnvironmentMissing(f"{what} {path} does not exist", hint=hint)
    if not os.access(path, os.X_OK):
        raise EnvironmentMissing(f"{what} {path} can't be executed", hint=hint)
    return path


def _has_pwf(venv: Path) -> bool:
    return any(
        found.exists()  # from Python 3.13 on a link that leads nowhere is found, too
        for library in ("lib", "lib64")
        for mark in _INSTALLED_PWF
        for found in venv.glob(f"{library}/python3*/site-packages/{mark}")
    )


# --- the environment ---------------------------------------------------------------------------------------


def client_environment(environ: Mapping[str, str], extra_names: Iterable[str] = ()) -> dict[str, str]:
    """The variables that a run gets from the client that starts it: the allowed ones and those that are named.

    A named one may end with `*`. The marker of a run is never passed on, so a run that a step starts is its
    own. Raises `InvalidArgument` for a value that is not text: it could not be kept.
    """
    names = tuple(extra_names)
    taken = {name: value for name, value in environ.items() if _is_allowed(name, names)}
    for name, value in taken.items():
        try:
            f"{name}={value}".encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"the environment variable {name!r} is not UTF-8, so a run can't be given it",
                hint="set it to text, or unset it for this command",
            ) from error
    return dict(sorted(taken.items()))


def _is_allowed(name: str, extra: tuple[str, ...]) -> bool:
    if name == MARKER_VARIABLE:
        return False
    if name in ALLOWED_VARIABLES or name.startswith("LC_"):
        return True
    return any(name == one or (one.endswith("*") and name.startswith(one[:-1])) for one in extra)


__all__ = [
    "ALLOWED_VARIABLES",
    "BUILTIN_WORKFLOWS",
    "Found",
    "Scope",
    "changed_sources",
    "choose_interpreter",
    "client_environment",
    "definition_id",
    "find_manager_file",
    "find_workflow_file",
    "list_manager_files",
    "list_workflow_files",
    "project_of",
    "project_root",
    "same_code",
    "still_valid",
    "verify_sources",
    "workflow_candidates",
]
