"""`pwf service`: the daemon under the user's own service manager, so that it serves after a crash and a reboot."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands
from pwf.cli.out import Out
from pwf.present import text

if TYPE_CHECKING:
    from pwf.host.service import Service
    from pwf.places import Places

SERVES_S_MAX = 15.0
POLL_S = 0.1


def add(commands: Commands) -> None:
    group = commands.group(
        "service",
        "keep the daemon running: a service of yours",
        example="pwf service install\npwf service status",
    )
    parser = group.add(
        "install",
        install,
        "write a service of yours for the daemon, and start it",
        example="pwf service install\npwf service install --print",
        more="A systemd user unit; on macOS a launchd agent. It is started again after a crash, and at login or boot.\n"
        "A daemon that serves now is told to stop first: its runs go on under the service.",
    )
    parser.add_argument(
        "--print", dest="only_print", action="store_true", help="only show what would be written"
    )
    group.add(
        "uninstall",
        uninstall,
        "stop the service and remove its file",
        example="pwf service uninstall",
        more="Runs stay where they are, until a command or `pwf start` starts a daemon.",
    )
    group.add(
        "status",
        status,
        "show whether the service is written and its daemon serves",
        example="pwf service status",
        more="The exit code is 1 unless the daemon that serves is the service's.",
    )


def _service(at: Places) -> Service:
    from pwf.config import load_config
    from pwf.host.service import service_of

    return service_of(at, load_config(at.config).drain_s)


def install(options: argparse.Namespace, out: Out) -> int:
    from pwf.cli.daemon import stop_serving
    from pwf.host.service import check_manager, ends_with_login, switch_on
    from pwf.places import places

    at = places()
    service = _service(at)
    if options.only_print:
        if out.as_json:
            out.emit({"path": str(service.path), "text": service.text})
        else:
            out.print(f"# {text.line(str(service.path))}\n{text.block(service.text)}")
        return exits.OK
    check_manager()
    existed = service.is_installed
    service.write()
    _say(out, f"{'wrote anew' if existed else 'wrote'} {text.line(str(service.path))}")
    stopped = stop_serving(None, out)
    if stopped is not None:
        _say(out, f"the daemon that served (pid {stopped.pid}) has stopped")
    switch_on(service)
    pid = _await_daemon(at)
    lingers = not ends_with_login()
    if out.as_json:
        out.emit({"path": str(service.path), "name": service.name, "pid": pid, "lingers": lingers})
        return exits.OK if pid else exits.UNAVAILABLE
    if not pid:
        out.note(f"the service does not serve yet; see why:  {_log_command(service)}")
        return exits.UNAVAILABLE
    out.print(f"the service {text.line(service.name)} serves (pid {pid}), and does so again at each login")
    if not lingers and sys.platform != "darwin":
        out.note("it ends when you log out, and begins when you log in; to keep it:  loginctl enable-linger")
    return exits.OK


def uninstall(options: argparse.Namespace, out: Out) -> int:
    from pwf.host.service import forget, switch_off
    from pwf.places import places

    service = _service(places())
    existed = service.is_installed
    if existed:
        if service.is_ours:  # else removing it says what is wrong
            switch_off(service)
        service.remove()
        forget(service)
    if out.as_json:
        out.emit({"path": str(service.path), "removed": existed})
    else:
        out.print(f"{'removed' if existed else 'there is no'} {text.line(str(service.path))}")
        if existed:
            out.note("nothing starts the daemon by itself any more; the next command does, or:  pwf start")
    return exits.OK


def status(options: argparse.Namespace, out: Out) -> int:
    from pwf.host.service import ends_with_login, state_of
    from pwf.places import places

    at = places()
    service = _service(at)
    state, pid = state_of(service), _serving_pid(at)
    serves = pid != 0 and pid == state.pid
    lingers = not ends_with_login()
    if out.as_json:
        out.emit(
            {
                "name": service.name,
                "path": str(service.path),
                "installed": service.is_installed,
                "current": service.is_current,
                "enabled": state.enabled,
                "active": state.active,
                "pid": state.pid,
                "daemon_pid": pid,
                "serves": serves,
                "lingers": lingers,
            }
        )
        return exits.OK if serves else exits.NO
    out.print(f"{'file':<10}{text.line(str(service.path))}{'' if service.is_installed else '  (not there)'}")
    out.print(f"{'service':<10}{text.line(state.says)}, {'enabled' if state.enabled else 'not enabled'}")
    out.print(f"{'daemon':<10}{f'pid {pid}' if pid else 'none serves'}{', the service' if serves else ''}")
    for words in _advice(service, active=state.active, pid=pid, serves=serves, lingers=lingers):
        out.note(words)
    return exits.OK if serves else exits.NO


def _advice(service: Service, *, active: bool, pid: int, serves: bool, lingers: bool) -> list[str]:
    """What to type next, if anything."""
    if not service.is_installed:
        return ["write and start it:  pwf service install"]
    advice = []
    if not service.is_current:
        advice.append("the file is not what would be written now:  pwf service install")
    if pid and not serves:
        advice.append(
            "a daemon serves that the service did not start; the service takes over after:  pwf stop"
        )
    elif not pid:
        advice.append(f"see why it does not serve:  {_log_command(service)}")
    if not lingers and sys.platform != "darwin":
        advice.append("it ends when you log out; to keep it:  loginctl enable-linger")
    return advice


def _log_command(service: Service) -> str:
    if sys.platform == "darwin":
        return "pwf logs"
    return f"journalctl --user -u {service.name} -n 20"


def _serving_pid(at: Places) -> int:
    """The pid of the daemon of this home that listens; 0: none."""
    from pwf.client.starting import try_connect
    from pwf.protocol.lock_record import read_record

    connection = try_connect(at)
    if connection is None:
        return 0
    connection.close()
    record = read_record(at.lock)
    return record.pid if record is not None else 0


def _await_daemon(at: Places) -> int:
    until = time.monotonic() + SERVES_S_MAX
    while not (pid := _serving_pid(at)) and time.monotonic() < until:
        time.sleep(POLL_S)
    return pid


def _say(out: Out, words: str) -> None:
    if not out.as_json:
        out.print(words)
