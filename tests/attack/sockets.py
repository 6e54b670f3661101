"""Attacks on the socket: large and odd frames, answers that nobody reads, foreign things at the socket's path."""

from __future__ import annotations

import json
import os
import socket
import time
from pathlib import Path

import psutil

from tests.attack.attack import attack, held
from tests.attack.files import ECHO
from tests.e2e.home import Home, wait_for
from tests.e2e.raw import Raw, origin

LOOP_S_MAX = 1.5  # that a second client waits meanwhile, on a loaded machine; the quadratic check took ten
MEMORY_BYTES_MAX = 300 * 1024 * 1024
KEYS = 40_000


@attack("the loop")
def a_value_with_a_doubled_last_key(home: Home) -> str:
    """Send 40,000 keys, the last one doubled: others are answered meanwhile, and the sender learns the key."""
    home.workflow("echo", ECHO)
    home.run("start")
    one, other = Raw(home), Raw(home)
    keys = ",".join(f'"key{index}":{index}' for index in range(KEYS))
    value = "{" + keys + f',"key{KEYS - 1}":0}}'
    request = {
        "type": "request",
        "request_id": "big",
        "client_id": "raw",
        "operation": "run.start",
        "payload": {"workflow": "echo", "origin": origin(home)},
    }
    text = json.dumps(request)[:-2] + ',"input":' + value + "}}\n"
    one._socket.sendall(text.encode())
    begun = time.monotonic()
    other.ask("daemon.status", {})
    waited = time.monotonic() - begun
    answer = one.receive()
    held(answer["outcome"] == "rejected", f"it was {answer['outcome']}")
    held(waited < LOOP_S_MAX, f"another client waited {waited:.1f} s")
    one.close()
    other.close()
    return f"rejected; another client waited {waited * 1000:.0f} ms"


@attack("memory")
def answers_that_nobody_reads(home: Home) -> str:
    """Ask for large answers and read none, from several connections: the daemon's memory stays bounded."""
    home.workflow("echo", ECHO)
    large = home.project / "large.json"
    large.write_text('{"text": "' + "pwf " * 200_000 + '"}')
    run = home.start("echo", "--input", f"@{large}")
    home.wait_status(run, "completed")
    digest = home.json("show", run)["output"]["digest"]
    daemon = psutil.Process(home.pid)
    before = daemon.memory_info().rss
    lines = [Raw(home) for _ in range(40)]
    for number, line in enumerate(lines):
        line._socket.setblocking(False)
        for index in range(64):
            frame = {
                "type": "request",
                "request_id": f"{number}-{index}",
                "client_id": "raw",
                "operation": "content.read",
                "run_id": run,
                "payload": {"digest": digest, "offset": 0},
            }
            try:
                line._socket.sendall(json.dumps(frame).encode() + b"\n")
            except OSError:
                break
    time.sleep(3)
    grown = daemon.memory_info().rss - before
    home.run("ls")
    for line in lines:
        line.close()
    held(grown < MEMORY_BYTES_MAX, f"the daemon has grown by {grown / 1e6:,.0f} MB")
    return f"grown by {grown / 1e6:,.0f} MB for {40 * 64:,} answers"


@attack("requests")
def a_field_of_the_wrong_type(home: Home) -> str:
    """A field of the wrong type is answered `rejected`, and the connection goes on."""
    home.run("start")
    line = Raw(home)
    answer = line.ask("run.list", {"limit": "many"})
    held(answer["outcome"] == "rejected", f"it was {answer}")
    held(line.ask("daemon.status", {})["outcome"] in ("accepted", "adopted"), "the connection does not go on")
    line.close()
    return "rejected, and the connection goes on"


@attack("the socket's path")
def something_else_stands_at_the_sockets_path(home: Home) -> str:
    """Put a file, a link, a folder and a live listener there in turn: none is replaced, and the daemon lives on."""
    home.run("start")
    pid = home.pid
    path = Path(home.record.socket)
    target = home.home.parent / "target"
    target.write_text("mine")
    seen = []
    for kind in ("file", "link", "folder", "listener"):
        path.unlink(missing_ok=True)
        listener = None
        if kind == "file":
            path.write_text("mine")
        elif kind == "link":
            path.symlink_to(target)
        elif kind == "folder":
            path.mkdir()
        else:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(path))
            listener.listen(1)
        before = os.lstat(path).st_ino
        time.sleep(3)
        held(psutil.pid_exists(pid) and home.pid == pid, f"a {kind} has ended the daemon")
        held(path.exists() and os.lstat(path).st_ino == before, f"the {kind} was replaced")
        held(target.read_text() == "mine", "the file that the link leads to was written")
        if listener is not None:
            listener.close()
        if kind == "folder":
            path.rmdir()
        else:
            path.unlink(missing_ok=True)
        seen.append(kind)
    wait_for(path.is_socket, 20)
    home.run("ls")
    return f"{', '.join(seen)} stayed; the socket came back when the path was free"


@attack("the socket's path")
def two_homes_share_a_runtime_folder(home: Home) -> str:
    """Serve two homes with one XDG_RUNTIME_DIR: each client reaches its own daemon."""
    base = home.home.parent
    runtime = base / "runtime"
    runtime.mkdir(mode=0o700)
    del home.environment["PWF_HOME"]
    ids = {}
    for name in ("one", "two", "one", "two"):
        home.environment |= {
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_STATE_HOME": str(base / name),
            "XDG_CONFIG_HOME": str(base / f"{name}-config"),
        }
        home.home = base / name / "pwf"
        found = home.json("state", "status")["home_id"]
        held(ids.setdefault(name, found) == found, f"the client of {name} reached another daemon")
    held(ids["one"] != ids["two"], "both clients reached one daemon")
    for name in ("one", "two"):
        home.environment["XDG_STATE_HOME"] = str(base / name)
        home.home = base / name / "pwf"
        home.run("stop", code=None)
    return "each reached its own"
