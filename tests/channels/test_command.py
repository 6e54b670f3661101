"""The channel of kind `command`: facts on stdin, at most once, bounded; and its real process behind the port."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import trio
import trio.testing

from pwf.actors.base.socket_stream import SocketStream
from pwf.actors.channels.adapter_process import AdapterProcess, open_adapter_process
from pwf.channels.command import CommandAdapter
from pwf.config import CommandChannel
from pwf.errors import RunnerCrashed
from pwf.protocol.channel_port import Begin, ChannelMessage, Ready, Sent, Show, Verdict, to_adapter
from tests.channels.messages import decision

TOLD = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_bytes(sys.stdin.buffer.read())"


def adapter(*command: str, **more: Any) -> CommandAdapter:
    settings = CommandChannel(command=command, **more)
    begin = Begin(epoch=1, name="desk", kind="command", settings=msgspec.Raw(b"{}"), config="/none")
    return CommandAdapter(None, begin, settings)  # type: ignore[arg-type]  # it asks nobody


def test_the_program_gets_the_facts_and_no_token(tmp_path: Path) -> None:
    told = tmp_path / "told"
    message = decision(token="s3cret")
    assert adapter(sys.executable, "-c", TOLD, str(told)).show(message).outcome == "done"
    facts = json.loads(told.read_text())
    assert (facts["event"], facts["title"], facts["words"]) == ("decide", message.title, message.words)
    assert facts["shown"]["summary"] == "Ship 1.2?"
    assert "s3cret" not in told.read_text()
    assert None not in facts.values()


def test_a_program_that_is_not_there_was_not_run_and_is_tried_again() -> None:
    came = adapter("/nowhere/notify").show(decision())
    assert (came.outcome, came.final) == ("refused", False)
    assert "/nowhere/notify can not be started" in (came.why or "")


def test_a_program_that_fails_is_not_run_again_and_says_why() -> None:
    came = adapter("sh", "-c", "echo no display >&2; exit 3").show(decision())
    assert (came.outcome, came.final, came.why) == ("refused", True, "it ended with 3: no display")


def test_one_that_takes_too_long_is_ended_with_all_that_it_started_and_nobody_knows(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    came = adapter("sh", "-c", f"sleep 99 & echo $! > {pids}; wait", timeout_s=0.5).show(decision())
    assert came.outcome == "unknown"
    until = time.monotonic() + 20
    while psutil.pid_exists(pid := int(pids.read_text())) and time.monotonic() < until:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            break
        time.sleep(0.01)
    else:
        assert not psutil.pid_exists(pid)


@pytest.mark.trio
async def test_the_process_serves_its_channel_and_ends_with_its_scope(tmp_path: Path) -> None:
    told = tmp_path / "told"
    settings = CommandChannel(command=(sys.executable, "-c", TOLD, str(told)))
    with trio.fail_after(60):
        async with open_adapter_process() as process:
            await process.say(
                Begin(
                    epoch=3,
                    name="desk",
                    kind="command",
                    settings=msgspec.Raw(msgspec.json.encode(settings)),
                    config="/none",
                )
            )
            assert await process.hear() == Ready(epoch=3)
            message = decision()
            await process.say(Show(attempt=2, message=message))
            assert await process.hear() == Sent(
                epoch=3, attempt=2, message_id=message.message_id, outcome="done"
            )
    assert told.exists()


@pytest.mark.trio
async def test_a_process_that_ends_says_why(tmp_path: Path) -> None:
    with trio.fail_after(60):
        async with open_adapter_process() as process:
            begin = Begin(epoch=1, name="x", kind="nothing", settings=msgspec.Raw(b"{}"), config="/none")
            await process.say(begin)
            with pytest.raises(RunnerCrashed, match="nothing"):
                await process.hear()


@pytest.mark.trio
async def test_two_tasks_may_tell_an_adapter_at_the_same_time() -> None:
    ours, theirs = socket.socketpair()
    kept: Any = None  # it is asked only why a process has ended
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
        process = AdapterProcess(SocketStream(ours), kept)
        verdict = Verdict(number=1, said="x" * 500_000, taken=True)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(process.say, verdict)
                await trio.testing.wait_all_tasks_blocked()
                heard = b""
                while heard.count(b"\n") < 2:
                    heard += await trio.to_thread.run_sync(theirs.recv, 65_536)
    assert [to_adapter.decode(line) for line in heard.splitlines()] == [verdict, verdict]


@pytest.mark.trio
async def test_a_process_that_can_not_read_what_the_daemon_says_ends_and_says_so() -> None:
    settings = msgspec.Raw(msgspec.json.encode(CommandChannel(command=("true",))))
    with trio.fail_after(60):
        async with open_adapter_process() as process:
            await process.say(Begin(epoch=1, name="x", kind="command", settings=settings, config="/none"))
            await process.hear()
            await process.say(Ready(epoch=1))  # type: ignore[arg-type]  # which only an adapter says
            with pytest.raises(RunnerCrashed, match="the daemon can not be heard: ValidationError"):
                await process.hear()


def test_a_message_fits_into_a_line() -> None:
    assert isinstance(
        msgspec.json.decode(msgspec.json.encode(decision()), type=ChannelMessage), ChannelMessage
    )
