"""Attacks by another user of the machine. Only root can act as one; without root they are left out."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.attack.attack import LeftOut, attack, contains, held, refused
from tests.attack.files import ECHO
from tests.e2e.home import Home

VICTIM, ATTACKER = 64_311, 64_312  # numbers of nobody
SECRET = b"the-password-of-the-victim"

LISTENER = """
import os, socket, sys, time
path, log = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
os.chmod(path, 0o777)
listener.listen(8)
open(log + ".ready", "w").close()
listener.settimeout(20)
while True:
    connection, _ = listener.accept()
    connection.settimeout(3)
    try:
        with open(log, "ab") as file:
            file.write(connection.recv(1 << 20))
    except OSError:
        pass
"""


def as_users(home: Home) -> None:
    """From here on `home` is the victim's; `LeftOut` where nobody can act as somebody else."""
    if os.geteuid() != 0:
        raise LeftOut("acting as another user needs root")
    folder = home.home.parent
    folder.chmod(0o755)
    if shutil.which("setpriv") is None:
        raise LeftOut("acting as another user needs setpriv (util-linux)")
    for path in (home.project, *home.project.rglob("*")):
        os.chown(path, VICTIM, VICTIM)


def python_as(user: int, *words: str) -> list[str]:
    """A command line that runs Python as that user.

    It may read what it likes: the checkout and its Python may lie where only root can look. Writing it may not.
    """
    may = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search")
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *may, sys.executable, *words]


def victim(home: Home, *words: str) -> subprocess.CompletedProcess[str]:
    """What the victim types."""
    return subprocess.run(
        python_as(VICTIM, "-m", "pwf.cli.main", *words),
        cwd=home.project,
        env={**home.environment, "HOME": str(home.project)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def listen(path: Path, log: Path) -> subprocess.Popen[bytes]:
    """The attacker serves a socket at `path`, and writes down what is sent to it."""
    log.parent.chmod(0o777)
    process = subprocess.Popen(
        python_as(ATTACKER, "-c", LISTENER, str(path), str(log)), stderr=subprocess.DEVNULL
    )
    ready = Path(f"{log}.ready")
    for _ in range(500):
        if ready.exists():
            break
        time.sleep(0.01)
    return process


@attack("who answers a client")
def another_user_serves_the_fallback_socket(home: Home) -> str:
    """Another user makes the folder in /tmp first, and listens where the victim's daemon would be."""
    as_users(home)
    deep = home.home.parent / ("long" * 30)
    home.home = deep / "home"
    deep.mkdir()
    os.chown(deep, VICTIM, VICTIM)
    home.environment["PWF_HOME"] = str(home.home)
    folder = Path(f"/tmp/pwf-{VICTIM}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    os.chown(folder, ATTACKER, ATTACKER)
    folder.chmod(0o755)
    path = folder / (hashlib.sha256(os.fsencode(home.home)).hexdigest()[:16] + ".sock")
    heard = home.home.parent / "heard" / "log"
    heard.parent.mkdir()
    process = listen(path, heard)
    home.workflow("echo", ECHO)
    home.checked = False
    try:
        done = victim(home, "run", "echo", "--input", f'{{"word": "{SECRET.decode()}"}}')
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    held(done.returncode != 0, "the victim's command was answered by the attacker")
    held("Traceback" not in done.stderr, f"a traceback: {done.stderr[-600:]}")
    held(not heard.exists() or SECRET not in heard.read_bytes(), "the attacker was given the input")
    return done.stderr.strip().splitlines()[0][:100]


@attack("whose code runs")
def a_workflow_of_another_user_is_started(home: Home) -> str:
    """Another user leaves a project where the victim works: its workflow is listed as refused, and does not run."""
    if os.geteuid() != 0:
        raise LeftOut("giving a file to another user needs root")
    path = home.workflow("gift", ECHO)
    os.chown(path, ATTACKER, ATTACKER)
    refused(home, "run", "gift", "--input", "{}", saying="trusted_folders")
    listed = home.run("workflows", code=None)
    held("gift" in listed.stdout + listed.stderr, "the list does not say that it was refused")
    return "refused, and trusted_folders is named"


@attack("whose code runs")
def a_workflow_that_all_can_write_is_started(home: Home) -> str:
    """A workflow that everyone can write is refused, with the setting that would allow it."""
    path = home.workflow("open", ECHO)
    path.chmod(0o666)
    said = refused(home, "run", "open", "--input", "{}", saying="trusted_folders")
    return said.strip().splitlines()[0][:100]


@attack("the home")
def another_user_connects_to_the_socket(home: Home) -> str:
    """Another user connects although the socket's file and folder were opened to all: the daemon turns it away."""
    as_users(home)
    os.chown(home.project, 0, 0)
    for path in home.project.rglob("*"):
        os.chown(path, 0, 0)
    home.run("start")
    path = Path(home.record.socket)
    path.chmod(0o777)
    home.home.chmod(0o755)
    code = (
        "import socket,sys; s=socket.socket(socket.AF_UNIX); s.settimeout(5); s.connect(sys.argv[1]);"
        's.sendall(b\'{"type":"hello","protocol":"pwf.client.v1","version":"x","client_id":"c"}\\n\');'
        "print(s.recv(65536).decode())"
    )
    done = subprocess.run(
        python_as(ATTACKER, "-c", code, str(path)),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    home.home.chmod(0o700)
    held('"home_identity"' not in done.stdout, f"it was greeted: {done.stdout[:200]}")
    leaked = contains(home.home, SECRET)
    held(not leaked, f"{leaked}")
    return "turned away"
