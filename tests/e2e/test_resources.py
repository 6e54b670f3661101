"""The example managers under a real daemon: the world is changed behind their backs, and what reconciles is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from pwf.protocol.resources import ResourceList, ResourceListPayload, ResourceRef, ResourceView
from tests.e2e.home import Home, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_S = 60.0


def install(home: Home, manager: str, *workflows: str) -> None:
    folder = home.project / ".pwf" / "resources"
    folder.mkdir(exist_ok=True)
    shutil.copy(EXAMPLES / "resources" / f"{manager}.py", folder)
    for name in workflows:
        shutil.copy(EXAMPLES / "workflows" / f"{name}.py", home.workflows)


def git(at: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(
        ["git", "-C", str(at), *identity, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_mirror_stays_in_step_whatever_is_done_behind_its_back(home: Home, tmp_path: Path) -> None:
    install(home, "git-mirror")
    upstream, mirror = tmp_path / "upstream", tmp_path / "mirror.git"
    upstream.mkdir()
    git(upstream, "init", "--quiet")
    git(upstream, "commit", "--quiet", "--allow-empty", "-m", "first")
    spec = {"upstream": str(upstream), "mirror": str(mirror)}
    file = tmp_path / "r.json"
    file.write_text(json.dumps([{"manager": "git-mirror", "key": "a", "spec": spec}]))

    def in_step() -> bool:
        try:
            git(mirror, "fsck", "--no-progress")
            return git(mirror, "rev-parse", "HEAD") == git(upstream, "rev-parse", "HEAD")
        except subprocess.CalledProcessError:
            return False

    planned = home.json("resource", "apply", "-f", str(file), "--dry-run")
    assert (planned["change"], mirror.exists()) == ("created", False)
    arrived = home.json("resource", "apply", "-f", str(file), "--wait", "--timeout", "60s")
    assert (arrived["state"], arrived["ready"], in_step()) == ("settled", "True", True)
    assert home.json("resource", "apply", "-f", str(file))["change"] == "unchanged"

    git(upstream, "commit", "--quiet", "--allow-empty", "-m", "second")
    wait_for(in_step, PATIENCE_S)

    home.kill_daemon()
    shutil.rmtree(mirror / "objects", ignore_errors=True)  # what reconciled may just be ending
    home.run("resource", "ls")
    wait_for(in_step, PATIENCE_S)
    assert home.json("resource", "get", "git-mirror/a")["status"]["json"]["made"] >= 2

    gone = home.json("resource", "delete", "git-mirror", "a", "--wait", "--timeout", "60s")
    assert (gone["state"], mirror.exists()) == ("gone", False)


SERVER = """
import os, sys, time
folder = sys.argv[1]
with open(folder + "/half", "w") as file:
    file.write(f"{os.environ['SERVICE_VERSION']} {os.getpid()}")
os.rename(folder + "/half", folder + "/up")
time.sleep(3600)
"""


@pytest.mark.rest
def test_a_service_runs_again_whatever_is_killed(home: Home, tmp_path: Path) -> None:
    install(home, "service", "service_process")
    (tmp_path / "server.py").write_text(SERVER)

    def spec(version: str) -> str:
        return json.dumps(
            {"command": [sys.executable, str(tmp_path / "server.py"), str(tmp_path)], "version": version}
        )

    def up() -> tuple[str, int]:
        """Version and pid of the process that has come up and lives."""
        version, pid = (tmp_path / "up").read_text().split()
        return (version, int(pid)) if psutil.pid_exists(int(pid)) else ("", 0)

    def another(before: int, version: str) -> Any:
        return wait_for(
            lambda: (found := up()) and found[1] not in (0, before) and found[0] == version, PATIENCE_S
        )

    home.json("resource", "apply", "service", "web", "--spec", spec("1"), "--wait", "--timeout", "60s")
    wait_for((tmp_path / "up").exists, PATIENCE_S)
    _, first = up()
    os.kill(first, signal.SIGKILL)
    another(first, "1")

    _, second = up()
    home.kill_daemon()
    home.run("resource", "ls")
    another(second, "1")

    _, third = up()
    home.json("resource", "apply", "service", "web", "--spec", spec("2"))
    another(third, "2")

    _, fourth = up()
    gone = home.json("resource", "delete", "service", "web", "--wait", "--timeout", "60s")
    assert gone["state"] == "gone"
    assert not psutil.pid_exists(fourth)


def test_the_views_of_resources_follow_what_happens(home: Home, tmp_path: Path) -> None:
    install(home, "git-mirror")
    spec = json.dumps({"upstream": str(tmp_path / "nowhere"), "mirror": str(tmp_path / "m")})
    uid = home.json("resource", "apply", "git-mirror", "a", "--spec", spec)["uid"]
    with home.client() as client:
        one = client.subscribe("resource", about=ResourceRef(uid=uid))
        listed = client.subscribe("resources", about=ResourceListPayload(manager="git-mirror"))
        reasons, seen = set(), 0
        while "Unreachable" not in reasons:
            assert client.next_news(one, seen, PATIENCE_S)
            seen = one.news
            view = one.value()
            assert isinstance(view, ResourceView)
            reasons.add(view.summary.reason)
        while not listed.news:
            client.poll(1.0)
        found = listed.value()
        assert isinstance(found, ResourceList)
        assert [summary.uid for summary in found.resources] == [uid]
        home.run("resource", "delete", "git-mirror", "a")
        while view.summary.state != "gone":
            assert client.next_news(one, seen, PATIENCE_S)
            seen = one.news
            view = one.value()
            assert isinstance(view, ResourceView)
