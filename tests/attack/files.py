"""Attacks on the files of a home: damage, links, deletion, and what a backup may touch."""

from __future__ import annotations

import os
import random
import shutil
import stat
import subprocess
from pathlib import Path

import apsw
import psutil

from tests.attack.attack import Broken, attack, held, refused
from tests.e2e.home import Home, ended, gone

ECHO = """
flow = Workflow("echo", input=dict)

@flow.compute
def same(ctx):
    return ctx.input
"""
RENEWS_OFTEN = "lease_s = 6\nlease_renew_s = 1\n"
FLIPS = 12
RENEWED_S_MAX = 30.0


def with_runs(home: Home, count: int = 3) -> list[str]:
    """A home that has ended runs, one of which holds a value of several pages."""
    home.workflow("echo", ECHO)
    runs = [home.start("echo", "--input", f'{{"n": {index}}}') for index in range(count)]
    large = home.project / "large.json"
    large.write_text('{"text": "' + "pwf " * 200_000 + '"}')
    runs.append(home.start("echo", "--input", f"@{large}"))
    for run in runs:
        home.wait_status(run, "completed")
    return runs


@attack("damage")
def bytes_are_flipped_in_the_database(home: Home) -> str:
    """Flip bytes all over a stopped database: verify names the damage or nothing of what was stored has changed."""
    with_runs(home)
    home.run("stop")
    sound = home.home / "pwf.db"
    kept = home.home.parent / "kept.db"
    shutil.copy(sound, kept)
    source, found, harmless = random.Random(9), 0, 0
    before = _content(kept)
    for _ in range(FLIPS):
        data = bytearray(kept.read_bytes())
        at = source.randrange(100, len(data))
        data[at] ^= 1 << source.randrange(8)
        sound.write_bytes(data)
        for name in ("pwf.db-wal", "pwf.db-shm"):
            (home.home / name).unlink(missing_ok=True)
        done = home.run("state", "verify", "--json", code=None)
        said = done.stdout + done.stderr
        held("Traceback" not in said, f"verify of byte {at} shows a traceback: {said[-800:]}")
        if done.returncode != 0:
            found += 1
        else:
            held(
                _content(sound) == before,
                f"byte {at} was flipped, content differs, and verify calls it sound",
            )
            harmless += 1
        home.run("stop", code=None)
    shutil.copy(kept, sound)
    home.checked = False
    return f"of {FLIPS} flips {found} were named, {harmless} lay in unused space"


def _content(path: Path) -> dict[str, list[tuple[object, ...]]] | None:
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        return {
            name: list(connection.execute(f"SELECT * FROM {name}")) for name in ("contents", "content_chunks")
        }
    except apsw.Error:
        return None


@attack("damage")
def chunks_of_a_value_are_deleted(home: Home) -> str:
    """Delete the chunks of a large value under a stopped daemon: verify, backup and the run say so."""
    with_runs(home)
    home.run("stop")
    connection = apsw.Connection(str(home.home / "pwf.db"))
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("DELETE FROM content_chunks")
    connection.close()
    home.checked = False
    done = home.run("state", "verify", code=None)
    held(done.returncode == 1, f"verify exits with {done.returncode}: {done.stdout[-300:]}")
    copied = home.run("state", "backup", str(home.home.parent / "copy.db"), code=None)
    held(copied.returncode != 0, "backup calls a copy without the chunks sound")
    return "verify and backup name it"


@attack("the home")
def the_database_is_deleted_under_the_daemon(home: Home) -> str:
    """Delete the database while the daemon serves: it stops loudly, and the next start makes no empty one."""
    home.config(RENEWS_OFTEN)
    home.run("start")
    daemon = psutil.Process(home.pid)
    (home.home / "pwf.db").unlink()
    home.checked = False
    gone(daemon, RENEWED_S_MAX)
    failed = [line for line in home.log() if line["event"] in ("daemon.failed", "daemon.refused")]
    held(failed, "the daemon ended without a word in its log")
    said = refused(home, "ls", saying="pwf state new")
    held("restore" in said, "the refusal does not name the restore")
    return "the daemon stopped, and the next start was refused"


@attack("the home")
def the_database_is_replaced_under_the_daemon(home: Home) -> str:
    """Put another database in the place of the one that is served: the daemon notices within a renewal."""
    home.config(RENEWS_OFTEN)
    home.run("start")
    daemon = psutil.Process(home.pid)
    other = home.home / "other.db"
    shutil.copy(home.home / "pwf.db", other)
    other.rename(home.home / "pwf.db")
    home.checked = False
    gone(daemon, RENEWED_S_MAX)
    return "the daemon stopped"


@attack("the home")
def others_can_write_the_home(home: Home) -> str:
    """Leave a home open to others, with a config in it: it is refused as it is, and not repaired."""
    home.home.mkdir()
    (home.home / "config.toml").write_text("max_runners = 1\n")
    home.home.chmod(0o777)
    said = refused(home, "ls", saying=str(home.home))
    held("config.toml" in said, f"what lies in it is not named: {said[-300:]}")
    held(stat.S_IMODE(home.home.stat().st_mode) == 0o777, "the home was repaired without a look")
    home.checked = False
    return "refused, and its files are named"


@attack("the home")
def files_of_the_home_are_links(home: Home) -> str:
    """Put links in the place of database, log, lock and ballast: no file elsewhere is written through them."""
    aims = {}
    for name in ("pwf.db", "daemon.log", "daemon.lock", "ballast"):
        target = home.home.parent / f"target-of-{name}"
        target.write_bytes(b"mine")
        shutil.rmtree(home.home, ignore_errors=True)
        home.home.mkdir(mode=0o700)
        (home.home / name).symlink_to(target)
        done = home.run("ls", code=None)
        held("Traceback" not in done.stderr, f"{name}: a traceback: {done.stderr[-600:]}")
        home.run("stop", code=None)
        aims[name] = done.returncode
        held(target.read_bytes() == b"mine", f"{name}: the file that the link leads to was written")
    home.checked = False
    return ", ".join(f"{name}: exit {code}" for name, code in aims.items())


@attack("the home")
def folders_are_made_under_umask_0(home: Home) -> str:
    """Start the first time under umask 0: no folder that pwf makes is open to others."""
    deep = home.home.parent / "state" / "deep" / "home"
    home.environment["PWF_HOME"] = str(deep)
    home.home = deep
    home.workflow("echo", ECHO)
    before = os.umask(0)
    try:
        home.run("run", "echo", "--input", "{}")
    finally:
        os.umask(before)
    made = [deep.parent.parent, deep.parent, *deep.rglob("*")]
    open_ = [
        path
        for path in made
        if not path.is_symlink() and path.stat().st_mode & 0o077 and not path.is_socket()
    ]
    held(not open_, f"open to others: {', '.join(map(str, open_))}")
    return f"{len(made)} folders and files, none open to others"


@attack("the home")
def the_home_is_a_link(home: Home) -> str:
    """Name the home by a link: it serves, as the folder that it leads to."""
    real = home.home.parent / "real"
    real.mkdir(mode=0o700)
    link = home.home.parent / "link"
    link.symlink_to(real)
    home.workflow("echo", ECHO)
    home.environment["PWF_HOME"] = str(link)
    home.home = real
    home.run("run", "echo", "--input", "{}")
    pid = home.pid
    home.environment["PWF_HOME"] = str(real)
    home.run("ls")
    held(home.pid == pid, "the link and the folder have a daemon each")
    return "one daemon for both names"


@attack("backup")
def a_backup_beside_files_of_the_user(home: Home) -> str:
    """Back up to a name beside which files of the user stand: none is touched, and odd names are refused in words."""
    with_runs(home, 1)
    folder = home.home.parent / "backups"
    folder.mkdir()
    own = [folder / f"copy.db{end}" for end in (".partial", "-wal", "-journal", "-shm")]
    for path in own:
        path.write_bytes(b"mine")
    home.run("state", "backup", str(folder / "copy.db"), code=None)
    for path in own:
        held(path.exists() and path.read_bytes() == b"mine", f"{path.name} of the user is gone")
    for name in ("pwf.db", "pwf.db-wal", "pwf.db-shm"):
        refused(home, "state", "backup", str(home.home / name), saying=name)
    refused(home, "state", "backup", str(folder / ("x" * 300)), saying="name")
    refused(home, "state", "backup", str(folder / ("x" * 5000)), saying="4096")
    return "nothing of the user's was touched"


@attack("the home")
def a_planted_config_leads_elsewhere(home: Home) -> str:
    """Link the config to a file that others can write: it is not obeyed."""
    home.home.mkdir(mode=0o700)
    planted = home.home.parent / "planted.toml"
    planted.write_text("max_runners = 1\n")
    planted.chmod(0o666)
    (home.home / "config.toml").symlink_to(planted)
    home.checked = False
    refused(home, "ls", saying="config")
    return "refused"


@attack("the home")
def the_lock_file_is_removed(home: Home) -> str:
    """Remove daemon.lock under a healthy daemon and start a second one: the first goes on, unfenced."""
    home.workflow("echo", ECHO)
    home.run("start")
    daemon = psutil.Process(home.pid)
    socket_path = home.record.socket
    (home.home / "daemon.lock").unlink()
    second = home.spawn("daemon")
    try:
        second.communicate(timeout=20)
    except subprocess.TimeoutExpired as error:
        second.kill()
        second.communicate()
        raise Broken("a second daemon serves the same home") from error
    held(not ended(daemon), "the healthy daemon has ended")
    with home.client() as client:
        client.call("daemon.status")
    run = home.start("echo", "--input", "{}")
    home.wait_status(run, "completed")
    return f"the first daemon went on behind {Path(socket_path).name}"
