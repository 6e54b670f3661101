"""Where pwf keeps things: homes never share a socket's path."""

from __future__ import annotations

import os
from pathlib import Path

from pwf.places import SOCKET_PATH_BYTES_MAX, places


def test_homes_with_one_runtime_folder_have_a_socket_each(tmp_path: Path) -> None:
    runtime = {"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/h"}
    first, second = (places({**runtime, "XDG_STATE_HOME": f"/h/{name}"}).socket for name in "ab")
    assert first != second
    assert first.parent == second.parent == Path("/run/user/7/pwf")


def test_homes_with_long_paths_have_a_short_socket_each(tmp_path: Path) -> None:
    long = "x" * SOCKET_PATH_BYTES_MAX
    first, second = (places({"PWF_HOME": f"/{long}/{name}"}).socket for name in "ab")
    assert first != second
    assert max(len(os.fsencode(path)) for path in (first, second)) <= SOCKET_PATH_BYTES_MAX


def test_one_home_has_one_socket_whatever_links_lead_to_it(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")
    runtime = {"XDG_RUNTIME_DIR": "/run/user/7", "HOME": "/h"}
    sockets = {
        places({**runtime, "XDG_STATE_HOME": str(tmp_path / name)}).socket for name in ("state", "link")
    }
    assert len(sockets) == 1
