"""`pwf daemon`, `start`, `stop`, `logs`: the process that serves."""

from __future__ import annotations

import argparse
import os
import time
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out
from pwf.errors import DaemonUnreachable, PwfError, Unavailable
from pwf.present import text

if TYPE_CHECKING:
    from pathlib import Path

    from pwf.protocol.operations import StopResult

STOP_MARGIN_S = 15.0  # over the drain time, for closing sockets and the last commit
POLL_S = 0.05


def add(commands: Commands) -> None:
    parser = commands.add(
        "daemon",
        daemon,
        "run the daemon in the foreground",
        example="pwf daemon",
        more="Any command that needs it starts it in the background; this is for service managers.",
    )
    parser.add_argument("--background-child", action="store_true", help=argparse.SUPPRESS)
    commands.add("start", start, "start the daemon in the background", example="pwf start")
    parser = commands.add(
        "stop",
        stop,
        "stop the daemon; runs go on when it starts again",
        example="pwf stop\npwf stop --drain 60s",
    )
    parser.add_argument("--drain", metavar="DURATION", help="let steps reach a boundary for so long")


def daemon(options: argparse.Namespace, out: Out) -> int:
    if options.background_child:
        import signal

        # A terminal that closes must not end a daemon that was started from it.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from pwf.actors.daemon import main

    try:
        code: int = main(background=options.background_child)
    except PwfError as error:
        if not options.background_child:
            raise
        return exits.of_error(error.code)  # its log has the reason, and nobody else reads
    return code


def start(options: argparse.Namespace, out: Out) -> int:
    from pwf.client.starting import try_connect
    from pwf.client.sync import SyncClient
    from pwf.places import places

    probe = try_connect(places())
    running = probe is not None
    if probe is not None:
        probe.close()
    while True:
        with SyncClient(autostart=True) as connected:
            pid, config = connected.pid, connected.places.config
            if not connected.is_stopping:
                break
        out.note(f"the daemon (pid {pid}) is stopping; another one starts when it has ended")
        if not _wait_for_end(pid, _patience_s(None, config), out):
            raise _still_stopping(pid, "pwf start")
        running = False
    if out.as_json:
        out.emit({"pid": pid, "started": not running})
    else:
        out.print(f"the daemon runs already (pid {pid})" if running else f"started (pid {pid})")
    return exits.OK


def _still_stopping(pid: int, again: str) -> Unavailable:
    return Unavailable(
        f"the daemon (pid {pid}) is still stopping", hint=f"run {again} again, or look at it with: pwf logs"
    )


def stop(options: argparse.Namespace, out: Out) -> int:
    drain_ms: int | None = None
    if options.drain is not None:
        from pwf.cli.typed import duration_ms

        drain_ms = duration_ms(options.drain, "--drain")
    stopped = stop_serving(drain_ms, out)
    if stopped is None:
        if out.as_json:
            out.emit({"stopped": False, "running": False})
        else:
            out.print("no daemon is running")
    elif out.as_json:
        out.emit({"stopped": True, "pid": stopped.pid, "applying": stopped.applying})
    else:
        out.print("stopped")
    return exits.OK


def stop_serving(drain_ms: int | None, out: Out) -> StopResult | None:
    """Stop the daemon and wait for its end. None: no daemon is running. Raises `Unavailable` when it takes too long."""
    from pwf.protocol.operations import StopPayload

    try:
        connected = client(autostart=False, reconnect=False)
        connected.open()
    except DaemonUnreachable:
        return None
    with connected:
        pid = connected.pid
        stopping: StopResult = connected.call("daemon.stop", StopPayload(drain_ms=drain_ms))
    for effect in stopping.applying:
        out.note(f"still applying: {text.line(effect)}  (it becomes ambiguous when the drain time ends)")
    ended = _wait_for_end(stopping.pid or pid, _patience_s(drain_ms, connected.places.config), out)
    if not ended:
        raise _still_stopping(stopping.pid or pid, "pwf stop")
    return stopping


def _patience_s(drain_ms: int | None, config: Path) -> float:
    if drain_ms is not None:
        return drain_ms / 1000 + STOP_MARGIN_S
    from pwf.config import load_config
    from pwf.errors import ConfigError

    try:
        return load_config(config).drain_s + STOP_MARGIN_S
    except ConfigError:
        return 10.0 + STOP_MARGIN_S  # a broken configuration must not keep anybody from stopping


def _wait_for_end(pid: int, patience_s: float, out: Out) -> bool:
    """Wait until the process is gone, saying every second that it isn't yet."""
    began = time.monotonic()
    said = 0
    while _is_alive(pid):
        passed = time.monotonic() - began
        if passed > patience_s:
            return False
        if int(passed) > said:
            said = int(passed)
            out.note(f"stopping… {said}s (running steps go on to their next boundary)")
        time.sleep(POLL_S)
    return True


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and was not collected by its parent does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return not os.path.isdir("/proc/self")  # no /proc here: the signal's word counts
    except (OSError, IndexError):
        return True
