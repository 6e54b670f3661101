"""The runner's sockets: order of replies, frames that are not in the protocol, the daemon's end, verified reads."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from pwf.errors import NotFound, ProtocolError
from pwf.protocol.runner import Leaving, StepReply, ValueChunk, encode_line
from pwf.runner.base.wire import DaemonGone, ValueReader, Wire
from pwf.values import digest


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


Ends = tuple[socket.socket, socket.socket]


def test_a_daemon_that_is_gone_ends_every_call(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    ours.close()
    with pytest.raises(DaemonGone):
        wire.receive_launch()
    with pytest.raises(DaemonGone):
        wire.send(Leaving())
    with pytest.raises(DaemonGone):
        ValueReader(theirs).read("0" * 64, "x")


@pytest.mark.parametrize("frame", [b"{}\n", b"nonsense\n", encode_line([StepReply(seq=1, verdict="go")])])
def test_the_first_frame_must_be_a_launch(ends: Ends, frame: bytes) -> None:
    ours, theirs = ends
    ours.sendall(frame)
    with pytest.raises(ProtocolError):
        Wire(theirs).receive_launch()


def test_a_reply_out_of_order_is_refused(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    for _ in range(2):
        wire.send_sequenced(Leaving(), wire.take_seq())
    ours.sendall(encode_line([StepReply(seq=2, verdict="go")]))
    with pytest.raises(ProtocolError):
        wire.drain()


def test_draining_takes_whole_replies_only_and_never_blocks(ends: Ends) -> None:
    ours, theirs = ends
    wire = Wire(theirs)
    wire.send_sequenced(Leaving(), wire.take_seq())
    line = encode_line([StepReply(seq=1, verdict="park")])
    assert wire.drain()
    ours.sendall(line[:10])
    assert wire.drain()
    ours.sendall(line[10:])
    assert not wire.drain()
    assert wire.stop is not None
    assert wire.stop.verdict == "park"


def test_a_value_with_other_content_than_its_digest_is_refused(ends: Ends) -> None:
    ours, theirs = ends
    ours.sendall(encode_line([ValueChunk(data=b"false", last=True)]))
    with pytest.raises(NotFound, match="other content"):
        ValueReader(theirs).read(digest(b"true"), "the value")


def test_a_missing_value_is_named(ends: Ends) -> None:
    ours, theirs = ends
    ours.sendall(encode_line([ValueChunk(missing=True, last=True)]))
    with pytest.raises(NotFound, match="the input"):
        ValueReader(theirs).read(digest(b"true"), "the input")
