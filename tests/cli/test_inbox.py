"""`pwf inbox`: what notify nodes have said."""

from __future__ import annotations

from pwf.protocol.notices import NoticeList
from tests.cli.conftest import Pwf
from tests.client import samples
from tests.client.fake_daemon import FakeDaemon


def test_inbox_shows_what_was_said_by_which_run_and_where_a_page_ends(daemon: FakeDaemon, pwf: Pwf) -> None:
    listed = NoticeList(notices=(samples.notice(text="one\n\x1b[31mtwo"),), next_cursor="1.2.3")
    daemon.on("notice.list", lambda request, payload: listed)
    shown = pwf("inbox")
    assert shown.code == 0
    assert f"release  {samples.RUN}  tell  final" in shown.out
    assert "  one\n" in shown.out
    assert "\x1b" not in shown.out
    assert "--cursor 1.2.3" in shown.err
