"""`pwf settings`: what it says of who may do what."""

import msgspec

from pwf.protocol.settings import PathRule, SettingsView
from tests.cli.conftest import Pwf
from tests.client.fake_daemon import FakeDaemon


def test_settings_get_names_what_a_person_may_less(pwf: Pwf, daemon: FakeDaemon) -> None:
    rules = {
        "": ("read", "replace"),
        "/a": ("read",),
        "/a/b": ("read", "replace"),
        "/c": ("read", "replace"),
        "/l/1": (),
        "/l/1/x": (),
    }
    view = SettingsView(
        run_id="k3",
        change=0,
        value=msgspec.Raw(b"{}"),
        paths=tuple(PathRule(path=path, may={"human": may}) for path, may in rules.items()),
    )
    daemon.on("settings.get", lambda _request, _payload: view)
    said = pwf("settings", "get", "k3").err
    assert "you may read, replace: all of it, except /a, /l/1\n" in said
    assert "you may read: /a\n" in said
