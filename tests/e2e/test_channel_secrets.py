"""A canary: the secrets of channels, from a file, a variable and a command, stand nowhere but in who needs them."""

from __future__ import annotations

import contextlib
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.channels.fakes import serving
from tests.e2e.channel_services import Ntfy, Service, Telegram, Webhook
from tests.e2e.home import Home, wait_for
from tests.e2e.world import PATIENCE_S
from tests.secret_files import keep_secret

FILE, VARIABLE, COMMAND = "c4n4ry:0f-a-file", "c4n4ry-0f-a-variable", "c4n4ry-0f-a-command"

SECRETS = """
[secrets.bot]
file = "{file}"

[secrets.topic]
environment = "PWF_TEST_CANARY"

[secrets.key]
command = ["cat", "{told}"]
"""

FLOW = """
import os, time
from pathlib import Path

flow = Workflow("decide_canary")

@flow.decision(audience="operator", choices=[Choice("ship", "Ship it"), Choice("hold", "Hold it")], timeout=None)
def approve(ctx):
    return "Ship it?"

@flow.action(effect=idempotent("look"))
def look(ctx):
    while not Path(ctx.input["folder"], "released").exists():
        time.sleep(0.02)
    return {"environment": dict(os.environ), "input": dict(ctx.input)}

flow.graph(approve.switch(ship=look, hold=look))
"""


def channels(services: dict[str, Service]) -> str:
    """Each by its own name, with its own secret."""
    text = ""
    for name, service in services.items():
        text += service.config().replace("[channels.out]", f"\n[channels.{name}]")
    return text.replace('token = "bot"\nreply', 'token = "topic"\nreply')


def bears(process: psutil.Process, canary: str) -> bool:
    """Whether its arguments or the environment that it was started with have it."""
    try:
        return canary in "\0".join([*process.cmdline(), *process.environ().values()])
    except psutil.Error:
        return False


@pytest.mark.rest
def test_the_secrets_of_channels_are_in_no_file_and_no_process_that_does_not_need_them(
    home: Home, tmp_path: Path
) -> None:
    keep_secret(tmp_path / "secrets" / "file", FILE)
    keep_secret(tmp_path / "secrets" / "told", COMMAND)
    home.environment["PWF_TEST_CANARY"] = VARIABLE
    services: dict[str, Service] = {"chat": Telegram(), "phone": Ntfy(), "hook": Webhook()}
    services["chat"].fake.token, services["phone"].fake.token = FILE, VARIABLE
    with ExitStack() as stack:
        for service in services.values():
            service.url = stack.enter_context(serving(service.fake))
        said = {"ok": False, "description": f"not with {FILE}", "error": f"not with {VARIABLE}"}
        for service in services.values():
            service.fake.faults = [(429, said)]  # what a service says may have its token in it
        secrets = SECRETS.format(file=tmp_path / "secrets/file", told=tmp_path / "secrets/told")
        home.config(secrets + channels(services))
        home.workflow("decide_canary", FLOW)
        run_id = home.start("decide_canary", "--set", f"folder={tmp_path}")
        wait_for(lambda: "not with ***" in home.run("channel", "status", "--json").stdout, PATIENCE_S)
        for service in services.values():
            wait_for(service.shown, PATIENCE_S)
        services["chat"].press()
        home.wait_status(run_id, "running", seconds=PATIENCE_S)
        wait_for(lambda: home.runners(run_id), PATIENCE_S)

        daemon = psutil.Process(home.pid)
        adapters = [one for one in daemon.children() if "pwf.channels.process" in one.cmdline()]
        assert len(adapters) == 3
        for canary in (FILE, COMMAND):
            assert [one for one in psutil.process_iter() if bears(one, canary)] == []
        holders = [one for one in psutil.process_iter() if bears(one, VARIABLE)]
        assert {daemon} <= set(holders) <= {daemon, *adapters}, "it has what it was started with"

        assert {"pwf.db", "pwf.db-wal", "daemon.log"} <= {path.name for path in home.home.iterdir()}
        assert found(home) == [], "while it is served"
        (tmp_path / "released").touch()
        home.wait_status(run_id, "completed", seconds=PATIENCE_S)
        shown = home.run("show", run_id).stdout + home.run("channel", "status").stdout
        assert "c4n4ry" not in shown
        home.run("state", "backup", str(home.home / "backup.db"))
    assert found(home) == []


def found(home: Home) -> list[Path]:
    """The files of the state folder that have any of them."""
    held = []
    for path in home.home.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and b"c4n4ry" in path.read_bytes():
                held.append(path)
    return held
