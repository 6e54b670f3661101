"""A canary: a secret that is used everywhere stands nowhere."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from tests.e2e.home import Home
from tests.secret_files import keep_secret

CANARY = "c4n4ry-0f-the-m1ne"

USES = """
import os, subprocess, sys, time

flow = Workflow("uses", secrets=["TOKEN"])

@flow.action(effect=idempotent("call"))
def call(ctx):
    token = ctx.secret("TOKEN")
    assert token == "-".join(["c4n4ry", "0f", "the", "m1ne"])
    print("printed", token, flush=True)
    os.write(2, token[:7].encode()); time.sleep(0.05); os.write(2, token[7:].encode())
    ctx.publish("token", token, {"token": token})
    return {"token": token, "large": token * 2000}

@flow.shell(effect=idempotent("sh"), env=lambda ctx: {"TOKEN": ctx.secret("TOKEN")})
def command(ctx):
    return ["sh", "-c", 'echo "shell $TOKEN"; echo "$TOKEN" >&2']

@flow.action(effect=parts("pay"))
def pay(ctx):
    token = ctx.secret("TOKEN")
    def apply(request, effect_key):
        return {"paid": request}
    return ctx.effect("one", {"token": token}, apply=apply)

@flow.action(effect=idempotent("die"))
def die(ctx):
    nap = [sys.executable, "-c", "import time; time.sleep(60)", ctx.secret("TOKEN")]
    subprocess.Popen(nap, start_new_session=True)
    os.kill(os.getpid(), 9)

@flow.checkpoint
def ask(ctx):
    return "is " + ctx.secret("TOKEN") + " right?"

@flow.action(effect=idempotent("fail"))
def fail(ctx):
    raise RuntimeError("refused: " + ctx.secret("TOKEN"))

flow.graph(call >> command >> pay >> die, die.on("failed") >> ask, ask >> fail)
"""


def _processes(home: Home) -> list[psutil.Process]:
    """The daemon and everything below it."""
    daemon = psutil.Process(home.pid)
    return [daemon, *daemon.children(recursive=True)]


def test_a_secret_is_in_no_file_no_environment_and_no_command_line(home: Home) -> None:
    home.home.mkdir(mode=0o700)
    secret = home.home / "secrets" / "TOKEN"
    home.workflow("uses", USES)
    missing = home.run("run", "uses", "--detach")
    assert f"install -D -m 600 /dev/stdin {secret}" in missing.stderr
    keep_secret(secret, CANARY + "\n")

    run_id = home.start("uses")
    home.wait_status(run_id, "waiting")
    for process in _processes(home):
        with contextlib.suppress(psutil.NoSuchProcess):  # or one that has ended
            assert CANARY not in " ".join(process.cmdline())
            assert CANARY not in str(process.environ())
    home.run("answer", f"run:{run_id}", "null")
    home.wait_status(run_id, "failed")
    shown = home.run("show", run_id, code=None).stdout + home.run("logs", run_id, code=None).stdout
    home.run("state", "backup", str(home.home / "backup.db"))

    assert "printed ***" in shown
    assert "shell ***" in shown
    assert "refused: ***" in shown
    files = [path for path in home.home.rglob("*") if path.is_file() and path != secret]
    assert {"pwf.db", "pwf.db-wal", "daemon.log", "backup.db"} <= {path.name for path in files}
    assert [path for path in files if CANARY.encode() in path.read_bytes()] == []
    assert any(b"***" in path.read_bytes() for path in Path(home.home / "output").rglob("*.err"))
