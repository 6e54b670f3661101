"""Environments in the cache, made from the registry on request: for peers, for a profiler, for another commit of pwf.

Nothing of a peer is installed beside pwf, and nothing of it is committed. An environment stands under the digest of
what it was asked to hold; a half-made one is thrown away.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cache import cache_folder

INSTALL_S_MAX = 420.0
NEWER_MAX = 10  # minor versions beyond the oldest that are looked for
SYSTEM_POSTGRES = Path("/usr/lib/postgresql")  # where Debian keeps the programs


class CanNotInstall(Exception):
    """The registry or the installer refuses; the message is its last word."""


def python_with(name: str, packages: Sequence[str], python: str = sys.executable) -> Path:
    """The interpreter of a virtual environment that holds the packages; made from `python` when it is missing."""

    def make(folder: Path) -> None:
        _install(folder, packages, python)

    return made(name, [*packages, python], make) / "bin" / "python"


def python_from(oldest: tuple[int, int]) -> str:
    """The oldest interpreter on this machine that is new enough: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(oldest[1], oldest[1] + NEWER_MAX):
        name = f"python{oldest[0]}.{minor}"
        for folder in (*_path_folders(), *sorted(pyenv.glob(f"{oldest[0]}.{minor}.*/bin"))):
            if (folder / name).exists() and _answers(folder / name):
                return str(folder / name)
    raise CanNotInstall(f"needs Python {oldest[0]}.{oldest[1]} or newer, which is not on this machine")


def _answers(python: Path) -> bool:
    """A shim of pyenv's stands for versions that are not chosen, and only says so."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def python_with_tree(name: str, tree: Path) -> Path:
    """The interpreter of a virtual environment in which the pwf of `tree` is installed as it stands there.

    So every process that pwf starts from it has that pwf, and the dependencies that its `pyproject.toml` asks for.
    """
    wanted = hashlib.sha256((tree / "pyproject.toml").read_bytes()).hexdigest()

    def make(folder: Path) -> None:
        _install(folder, ["--editable", str(tree)])

    return made(name, [str(tree), wanted], make) / "bin" / "python"


def _install(folder: Path, what: Sequence[str], made_by: str = sys.executable) -> None:
    run([made_by, "-m", "venv", str(folder)])
    python = str(folder / "bin" / "python")
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what])


def node_package(name: str, package: str) -> Path:
    """The folder `node_modules` that holds the package; made when it is missing."""
    npm = shutil.which("npm")
    if npm is None:
        raise CanNotInstall("npm is not installed")

    def make(folder: Path) -> None:
        run([npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), package])

    return made(name, [package], make) / "node_modules"


def postgres_programs() -> str:
    """The folder with PostgreSQL's programs. It is a server of the system's: used where present, not installed."""
    for folder in (*_path_folders(), *sorted(SYSTEM_POSTGRES.glob("*/bin"), reverse=True)):
        if all((folder / name).exists() for name in ("initdb", "postgres")):
            return str(folder)
    raise CanNotInstall("PostgreSQL (initdb and postgres) is not on this machine")


def restate_server() -> str:
    """The server's binary, which npm brings for this system."""
    folder = node_package("restate-server", "@restatedev/restate-server")
    for found in sorted(folder.glob("@restatedev/restate-server-*/bin/restate-server")):
        return str(found)
    raise CanNotInstall("npm brings no restate-server for this system")


def _path_folders() -> list[Path]:
    return [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]


def made(name: str, packages: Sequence[str], make: Callable[[Path], None]) -> Path:
    """The folder that `make(folder)` fills, from the cache where it is whole; half-made ones are thrown away."""
    digest = hashlib.sha256(" ".join((sys.version, *packages)).encode()).hexdigest()[:12]
    folder = cache_folder() / "environments" / f"{name}-{digest}"
    whole = folder / "whole"  # environments can not be moved, so a mark says that this one is finished
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            make(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        whole.touch()
    return folder


def run(command: list[str]) -> None:
    """Run an installer; `CanNotInstall` with the last line that it said when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S_MAX, check=False)
    except subprocess.TimeoutExpired:
        raise CanNotInstall(f"{Path(command[0]).name} took longer than {INSTALL_S_MAX:g} s") from None
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise CanNotInstall(lines[-1] if lines else f"exit code {done.returncode}")
