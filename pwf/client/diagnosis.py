"""What this machine and home look like from outside the daemon: the facts behind `pwf doctor`.

Each check looks at one thing, changes nothing, and says what to do about it. They work without a daemon:
that is when they are needed.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pwf.client.finding import Check, fail, ok, warn
from pwf.client.reaching_people import check_channels, check_pages
from pwf.client.starting import socket_path, try_connect
from pwf.client.version import version
from pwf.config import load_config
from pwf.errors import ConfigError, HomeRefused, PwfError
from pwf.ownership import check_own
from pwf.places import Places
from pwf.protocol.database_file import HEADER_BYTES, is_ours
from pwf.protocol.lock_record import LockRecord, read_record

if TYPE_CHECKING:
    from pwf.host import Bearer

SPACE_FAIL = 64 * 1024 * 1024
SPACE_WARN = 512 * 1024 * 1024
LOG_WARN = 32 * 1024 * 1024
PYTHON_MIN = (3, 11)
SQLITE_MIN = (3, 37, 0)  # STRICT tables
#: What is installed with pwf, and what that is imported as.
PACKAGES = {
    name: name.replace("-", "_")
    for name in (
        "anyio",
        "apsw",
        "jsonpatch",
        "jsonschema-rs",
        "msgspec",
        "psutil",
        "rich",
        "trio",
        "trio-util",
        "watchfiles",
    )
}
EARLIEST_WALL_S = 1_735_689_600  # 2025-01-01: an earlier clock was never set
STEP_BACK_S = 120
LOOK_AGAIN_S = 1.0
PIDS_SHOWN = 8


def checks(at: Places) -> Iterator[Check]:
    """All checks, in the order in which their causes build on each other."""
    looked: tuple[Callable[[Places], Check], ...] = (
        check_python,
        check_packages,
        check_sqlite,
        check_home,
        check_database,
        check_file_system,
        check_space,
        check_config,
        check_pages,
        check_channels,
        check_interpreter,
        check_clock,
        check_socket,
        check_daemon,
        check_leftovers,
    )
    for check in looked:
        yield check(at)


def check_python(at: Places) -> Check:
    found = f"Python {sys.version.split()[0]} ({sys.executable}), pwf {version()}"
    if sys.version_info < PYTHON_MIN:
        return fail("python", found, "install pwf for Python 3.11 or newer")
    return ok("python", found)


def check_packages(at: Places) -> Check:
    """Whether what pwf needs is installed: after an update of its source, something new may be missing."""
    missing = [name for name, module in PACKAGES.items() if find_spec(module) is None]
    if missing:
        fix = f"{sys.executable} -m pip install {' '.join(missing)}; then pwf stop"
        return fail("packages", f"missing: {', '.join(missing)}", fix)
    return ok("packages", "all that pwf needs are installed")


def check_sqlite(at: Places) -> Check:
    try:
        import apsw
    except ImportError as error:
        return fail(
            "sqlite", f"apsw can not be loaded: {error}", "python -m pip install --force-reinstall apsw"
        )
    found = str(apsw.sqlitelibversion())
    if tuple(int(part) for part in found.split(".")[:3]) < SQLITE_MIN:
        return fail("sqlite", f"SQLite {found} is too old", "python -m pip install --upgrade apsw")
    return ok("sqlite", f"SQLite {found} (apsw {apsw.apswversion()})")


def check_home(at: Places) -> Check:
    from pwf.host.home import refuse_open_home

    try:
        facts = at.home.stat()
    except FileNotFoundError:
        return _creatable(at.home)
    except OSError as error:
        return fail("home", f"{at.home}: {error.strerror}", "set PWF_HOME to another folder")
    if not stat.S_ISDIR(facts.st_mode):
        return fail("home", f"{at.home} is not a folder", f"move it away: mv {at.home} {at.home}.old")
    if facts.st_uid != os.getuid():
        return fail(
            "home",
            f"{at.home} belongs to another user (uid {facts.st_uid})",
            "set PWF_HOME to a folder of your own",
        )
    if not os.access(at.home, os.W_OK | os.X_OK):
        return fail("home", f"{at.home} can not be written", f"chmod 700 {at.home}")
    try:
        refuse_open_home(at.home, facts)
        for path in (at.database, at.log, at.last_words, at.lock, at.ballast):
            check_own(path)
    except HomeRefused as error:
        return fail("home", error.message, error.hint or f"ls -la {at.home}")
    mode = stat.S_IMODE(facts.st_mode)
    if mode & 0o077:
        return warn("home", f"{at.home} has mode {mode:04o}: others can look in", f"chmod 700 {at.home}")
    open_files = [
        path.name for path in (at.database, at.log, at.last_words, at.lock) if _open_to_others(path)
    ]
    if open_files:
        paths = " ".join(str(at.home / name) for name in open_files)
        return warn("home", f"others can read {', '.join(open_files)} in {at.home}", f"chmod 600 {paths}")
    return ok("home", f"{at.home}, mode {mode:04o}")


def check_database(at: Places) -> Check:
    record = read_record(at.lock) or LockRecord()
    if os.path.lexists(at.database):
        return _check_header(at) or _check_log(at, record)
    if record.home_id:
        return fail(
            "database",
            f"{at.database} is gone, and this folder was served before",
            "pwf state restore FILE puts a backup in its place; pwf state new begins with an empty one",
        )
    return ok("database", f"{at.database} will be made when it is needed")


def _check_header(at: Places) -> Check | None:
    """A file that the daemon would refuse; None where it is a database of pwf."""
    try:
        with at.database.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        return fail("database", f"{at.database} can not be read: {error.strerror}", f"ls -la {at.database}")
    if is_ours(header):
        return None
    return fail(
        "database",
        f"{at.database} is not a pwf database",
        f"mv {at.database} {at.database}.damaged, then: pwf state restore FILE (a backup), or pwf state new",
    )


def _check_log(at: Places, record: LockRecord) -> Check:
    """The database's log, and who may keep it from being cut."""
    from pwf.host.holders import files_of, holders, pinned_by

    try:
        size = at.database.with_name(at.database.name + "-wal").stat().st_size
    except OSError:
        size = 0
    found = f"{at.database}, log {size / 1024**2:,.1f} MiB"
    others = holders(files_of(at.database), besides=(record.pid,))
    if size >= LOG_WARN:
        pids = " ".join(str(holder.pid) for holder in others)
        fix = f"look at it, then end it: ps -fp {pids}" if pids else "pwf status shows what the daemon does"
        return warn("database", pinned_by(size, others), f"{fix}; the file shrinks by itself then")
    more = f"; open in {', '.join(map(str, others))} as well" if others else ""
    return ok("database", found + more)


def _creatable(home: Path) -> Check:
    parent = next((folder for folder in home.parents if folder.exists()), Path("/"))
    if os.access(parent, os.W_OK | os.X_OK):
        return ok("home", f"{home} will be made when it is needed")
    return fail(
        "home", f"{home} can not be made: {parent} is not writable", "set PWF_HOME to a folder of your own"
    )


def _open_to_others(path: Path) -> bool:
    try:
        return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
    except OSError:
        return False


def check_file_system(at: Places) -> Check:
    from pwf import host

    folder = _existing(at.home)
    try:
        kind, network = host.filesystem_type(folder), host.is_network_filesystem(folder)
    except OSError as error:
        return warn("file system", f"{folder}: {error.strerror}", "check that it is a local disk")
    if network:
        return fail(
            "file system",
            f"{folder} is on {kind}, a network file system: its locks can not be trusted",
            "set PWF_HOME to a folder on a local disk",
        )
    if kind in ("tmpfs", "ramfs"):
        return warn(
            "file system", f"{folder} is on {kind}: a reboot loses it", "set PWF_HOME to a folder on a disk"
        )
    return ok("file system", f"{kind}, local")


def check_space(at: Places) -> Check:
    usage = shutil.disk_usage(_existing(at.home))
    found = f"{usage.free / 1024**2:,.0f} MiB free of {usage.total / 1024**2:,.0f} MiB"
    fix = f"free some space on the disk of {at.home}"
    if usage.free < SPACE_FAIL:
        return fail("space", found, fix)
    return warn("space", found, fix) if usage.free < SPACE_WARN else ok("space", found)


def check_config(at: Places) -> Check:
    try:
        load_config(at.config)
    except PwfError as error:
        return fail("config", error.message, error.hint or f"edit {at.config}")
    return ok("config", str(at.config) if at.config.exists() else f"{at.config} (not there: defaults)")


def check_interpreter(at: Places) -> Check:
    """The Python of runs that are started from here, and that of runs which are held for want of theirs."""
    from pwf.discovery import choose_interpreter, project_root

    try:
        chosen = choose_interpreter(
            project_root(Path.cwd()), load_config(at.config).interpreter, sys.executable
        )
    except ConfigError:
        return warn("interpreter", "not known: the configuration can not be read", f"mend {at.config}")
    except (PwfError, OSError) as error:
        return fail("interpreter", str(error), getattr(error, "hint", None) or "cd to a folder that exists")
    gone = _missing_interpreters(at)
    if gone:
        run_id, path = gone[0]
        more = f" and {len(gone) - 1} more" if len(gone) > 1 else ""
        return fail(
            "interpreter",
            f"run {run_id}{more} is held: its interpreter {path} can not serve it",
            f"make {path} again with pwf in it, then: pwf resume {run_id}",
        )
    return ok("interpreter", f"{chosen} (of runs that are started here)")


def _missing_interpreters(at: Places) -> list[tuple[str, str]]:
    """The newest runs that are held for their interpreter, and its path; none where no daemon says so."""
    from pwf.client.sync import SyncClient
    from pwf.protocol.operations import RunListPayload

    try:
        with SyncClient(at, autostart=False, reconnect=False) as client:
            if not client.call("daemon.status", timeout_s=5).held.get("environment_missing"):
                return []
            held = client.call("run.list", RunListPayload(statuses=("held",)), timeout_s=5).runs
            names = [run.run_id for run in held if run.hold == "environment_missing"]
            views = [client.call("run.view", run_id=name, timeout_s=5) for name in names[:PIDS_SHOWN]]
    except PwfError:
        return []  # the check of the daemon says what is wrong with it
    return [(view.summary.run_id, view.interpreter) for view in views]


def check_clock(at: Places) -> Check:
    from pwf import host

    try:
        host.boot_id()
        host.own_identity()
    except PwfError as error:
        return fail("clock", error.message, error.hint or "pwf can not serve on this machine")
    now = time.time()
    if now < EARLIEST_WALL_S:
        return fail("clock", f"the clock says {time.ctime(now)}", "set the clock (timedatectl set-ntp true)")
    ahead = _newest(at) - now
    if ahead > STEP_BACK_S:
        return warn(
            "clock",
            f"files of the home are {ahead:,.0f} s in the future: the clock has stepped back",
            "set the clock (timedatectl set-ntp true)",
        )
    return ok("clock", time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)))


def _newest(at: Places) -> float:
    found = 0.0
    for path in (at.database, at.log, at.lock):
        try:
            found = max(found, path.stat().st_mtime)
        except OSError:
            continue
    return found


def check_socket(at: Places) -> Check:
    path = Path(socket_path(at))
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return ok("socket", f"{path} (not there: no daemon runs)")
    except OSError as error:
        return fail("socket", f"{path}: {error.strerror}", f"check the permissions of {path.parent}")
    if not stat.S_ISSOCK(facts.st_mode):
        return fail("socket", f"{path} is not a socket", f"move it away: mv {path} {path}.old")
    if facts.st_uid != os.getuid():
        return fail("socket", f"{path} belongs to another user", "set PWF_HOME to a folder of your own")
    if stat.S_IMODE(facts.st_mode) & 0o077:
        return warn("socket", f"{path} has mode {stat.S_IMODE(facts.st_mode):04o}", f"chmod 600 {path}")
    return ok("socket", str(path))


def check_daemon(at: Places) -> Check:
    from pwf.client.sync import SyncClient

    record = read_record(at.lock)
    try:
        connection = try_connect(at)
    except PwfError as error:
        return fail("daemon", error.message, error.hint or "pwf logs")
    if connection is None:
        if record is not None and record.pid and _is_alive(record.pid):
            return fail(
                "daemon",
                f"pid {record.pid} holds the lock but does not listen",
                f"pwf logs; then kill {record.pid}",
            )
        return ok("daemon", "not running (commands that need it start it)")
    connection.close()
    try:
        with SyncClient(at, autostart=False, reconnect=False) as client:
            status = client.call("daemon.status", timeout_s=5)
    except PwfError as error:
        return fail("daemon", error.message, error.hint or "pwf logs")
    found = f"{status.state}, pid {status.pid}, pwf {status.version}"
    if status.disk_full:
        return fail("daemon", f"{found}: disk full", "free some space; the daemon goes on by itself")
    if status.violations:
        first = status.violations[0]
        about = f"run {first.run_id}: " if first.run_id else ""
        return fail(
            "daemon", f"{found}: a rule is broken: {about}{first.message}", "pwf state verify names all"
        )
    if status.problems:
        problems = "; ".join(status.problems)
        fix = "pwf state prune --before 7d" if "max_state_size" in problems else "pwf state verify"
        if "answer pages" in problems:
            fix = "mend what it says, then pwf stop; pwf web in a terminal says more"
        if "channel " in problems:
            fix = "pwf channel status"
        if "can't be cut" in problems:
            fix = "look at the process that is named, then end it; the file shrinks by itself then"
        return warn("daemon", f"{found}: {problems}", fix)
    if status.state == "degraded":
        return fail("daemon", found, "pwf logs")
    if status.version != version():
        return warn(
            "daemon", f"{found}, but this is pwf {version()}", "pwf stop; the next command starts the new one"
        )
    return ok("daemon", found)


def check_leftovers(at: Places) -> Check:
    """Processes that bear this home's marker and belong to no live runner."""
    record = read_record(at.lock) or LockRecord()
    if not record.home_id:
        return ok("leftovers", "none (no daemon has served here yet)")
    prefix = f"{record.home_id}:"
    serves = bool(record.pid) and _is_alive(record.pid)
    found = _bearers(prefix)
    if not serves and found:
        return warn(
            "leftovers",
            f"no daemon runs, but processes of its runs do: {_pids(found)}",
            "pwf start (it ends or adopts them)",
        )
    try:
        left = _without_runner(at, found)
        if left:  # a runner that is just ending may be among them: what is left a moment later is
            time.sleep(LOOK_AGAIN_S)
            still = {bearer.identity for bearer in _bearers(prefix)}
            left = _without_runner(at, [bearer for bearer in left if bearer.identity in still])
    except PwfError as error:
        return warn("leftovers", f"the daemon does not say which runners live: {error.message}", "pwf logs")
    if left:
        pids = _pids(left)
        return warn(
            "leftovers",
            f"processes of earlier runs belong to no live runner: {pids}",
            f"look at them, then end them: kill {pids.replace(',', '')}",
        )
    lived = f" ({len(found)} processes belong to live runs)" if found else ""
    return ok("leftovers", f"none{lived}")


def _bearers(prefix: str) -> list[Bearer]:
    from pwf import host
    from pwf.protocol.runner import MARKER_VARIABLE

    found = host.find_bearers(MARKER_VARIABLE)
    return [bearer for bearer in found if (bearer.marker or "").startswith(prefix)]


def _without_runner(at: Places, found: list[Bearer]) -> list[Bearer]:
    """Those whose marker is no live runner's, by the daemon's word now."""
    if not found:
        return []
    from pwf.client.sync import SyncClient

    with SyncClient(at, autostart=False, reconnect=False) as client:
        live = {runner.marker for runner in client.call("daemon.status", timeout_s=5).live}
    return [bearer for bearer in found if bearer.marker not in live]


def _pids(found: list[Bearer]) -> str:
    pids = sorted({bearer.identity.pid for bearer in found})
    return ", ".join(map(str, pids[:PIDS_SHOWN])) + (
        f" and {len(pids) - PIDS_SHOWN} more" if len(pids) > PIDS_SHOWN else ""
    )


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
