"""A PostgreSQL server of the benchmark's own, in a temporary folder, on a Unix socket. Its defaults: fsync on.

For a peer's script. The server refuses to run as root, so under root it runs as `nobody`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.telling import until

USER = "bench"


@contextmanager
def serving(programs: Path, folder: Path) -> Iterator[str]:
    """Serve from `folder`; the URL without a database's name, to be completed as `url(base, name)`."""
    data = folder / "data"
    data.mkdir(mode=0o700)
    other = _other_user(folder, data)
    init = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", USER, "-E", "UTF8", "--no-locale"]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, user=other, cwd=data)
    command = [str(programs / "postgres"), "-D", str(data), "-k", str(data), "-c", "listen_addresses="]
    server = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=other, cwd=data
    )
    try:
        until(lambda: _answers(str(data)), 30)
        yield str(data)
    finally:
        server.terminate()
        server.wait()


def url(base: str, name: str) -> str:
    """How clients reach a database of the server."""
    return f"postgresql://{USER}@/{name}?host={base}"


def _answers(base: str) -> bool:
    import psycopg  # in the peer's environment

    try:
        psycopg.connect(url(base, "postgres")).close()
    except psycopg.OperationalError:
        return False
    return True


def _other_user(folder: Path, data: Path) -> str | None:
    if os.geteuid() != 0:
        return None
    shutil.chown(data, "nobody")
    for parent in (folder, *folder.parents):  # it must be able to pass through our own temporary folders
        if parent.name.startswith("pwf-bench-"):
            parent.chmod(0o711)
    return "nobody"
