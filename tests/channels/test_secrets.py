"""No word of an adapter has a secret in it, whatever is wrong with that: not as it is, and not quoted by an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from pwf.actors.channels.adapter_process import open_adapter_process
from pwf.channels.http import NotReached, call, stream
from pwf.channels.port import Adapter, nameless, outcome_of
from pwf.config import NtfyChannel
from pwf.errors import RunnerCrashed, SecretMissing
from pwf.protocol.channel_port import Begin, Close, Show
from tests.channels.fakes import BOT_TOKEN, KEY, FakeNtfy, serving
from tests.channels.messages import decision
from tests.channels.test_conformance import Case
from tests.secret_files import keep_secret

CANARY = "tk_canary"


def damaged(case: Case, value: str) -> None:
    """Both secrets are such."""
    for name in ("bot", "key"):
        (case.config.parent / "secrets" / name).write_text(value)


@pytest.mark.parametrize("kind", ["ntfy", "telegram", "webhook"])
@pytest.mark.parametrize("between", ["\n", "\r\n", "\x00", "\x7f", "\x85"])
def test_a_secret_with_a_control_character_is_refused_by_name(
    tmp_path: Path, kind: str, between: str
) -> None:
    case = Case(kind, tmp_path, "http://127.0.0.1:9", FakeNtfy())
    damaged(case, f"{CANARY}{between}{CANARY}\n")
    with pytest.raises(SecretMissing, match="control character") as refused:
        case.adapter()
    assert CANARY not in f"{refused.value.message} {refused.value.hint}"


def test_space_around_a_secret_is_none_of_it(tmp_path: Path) -> None:
    fake = FakeNtfy()
    with serving(fake) as url:
        case = Case("ntfy", tmp_path, url, fake)
        damaged(case, f" {BOT_TOKEN}\n\n")
        assert case.adapter().show(decision()).outcome == "done"


@pytest.mark.parametrize(
    "ask", [lambda *said: call(said[0], b"", said[1]), lambda *said: stream(*said, timeout_s=1)]
)
@pytest.mark.parametrize(
    ("url", "header"),
    [
        ("http://127.0.0.1:9/", f"{CANARY}\n"),
        ("http://127.0.0.1:9/", f"{CANARY}→"),
        (f"nothing {CANARY}", "x"),
    ],
)
def test_what_can_not_be_sent_was_not_and_is_not_quoted(ask: Any, url: str, header: str) -> None:
    with pytest.raises(NotReached) as refused:
        ask(url, {"Authorization": header})
    assert CANARY not in str(refused.value)


class Failing(Adapter[NtfyChannel]):
    """Says the secret in every error."""

    def show(self, message: Any) -> Any:
        raise LookupError(f"b'{CANARY}'")

    close = show


def test_an_error_of_an_adapter_leaves_the_message_unknown_and_says_which_and_where_alone() -> None:
    begin = Begin(epoch=1, name="x", kind="ntfy", settings=msgspec.Raw(b"{}"), config="/none")
    adapter = Failing(None, begin, NtfyChannel(topic="t"))  # type: ignore[arg-type]
    close = Close(attempt=1, ref="r", message_id="m", title="t", said="s")
    for work in (Show(attempt=1, message=decision()), close):
        came = outcome_of(adapter, work)
        assert came.outcome == "unknown"
        assert (came.why or "").startswith("a fault of the adapter: LookupError at test_secrets.py:")
        assert CANARY not in repr(came)
    assert nameless(ValueError(CANARY)) == "ValueError"


@pytest.mark.trio
async def test_a_process_that_ends_of_its_secret_says_no_part_of_it(tmp_path: Path) -> None:
    keep_secret(tmp_path / "secrets" / "bot", f"{CANARY}\n{KEY}\n")
    settings = msgspec.Raw(msgspec.json.encode(NtfyChannel(topic="t", token="bot")))
    config = str(tmp_path / "config.toml")
    with trio.fail_after(60):
        async with open_adapter_process() as process:
            await process.say(Begin(epoch=1, name="x", kind="ntfy", settings=settings, config=config))
            with pytest.raises(RunnerCrashed, match="the secret bot") as ended:
                await process.hear()
    assert CANARY not in ended.value.message
    assert KEY not in ended.value.message
