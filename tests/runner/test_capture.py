"""What is kept of a stream, in whatever pieces it comes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pwf.runner.kinds.capture import LINE_BYTES_MAX, TAIL_BYTES, Capture

PIECES = st.binary(max_size=40) | st.sampled_from([b"a\nb\r\n", b"1%\r2%\r", b"\n"])


@given(pieces=st.lists(PIECES, max_size=12), cap=st.integers(0, 60))
def test_the_pieces_make_no_difference(pieces: list[bytes], cap: int) -> None:
    whole = b"".join(pieces)
    lines: list[str] = []
    capture = Capture(cap, lines.append)
    for piece in pieces:
        capture.feed(piece)
    capture.close()
    assert bytes(capture.kept) == whole[:cap]
    assert capture.dropped == max(0, len(whole) - cap)
    expected = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if expected[-1] == b"":
        expected.pop()
    assert lines == [line.decode("utf-8", "replace") for line in expected]


def test_a_line_at_the_limit_is_whole_and_one_above_is_cut() -> None:
    lines: list[str] = []
    capture = Capture(10, lines.append)
    for extra in (0, 1):
        capture.feed(b"x" * (LINE_BYTES_MAX // 2))
        capture.feed(b"x" * (LINE_BYTES_MAX // 2 + extra) + b"\n")
    assert lines == ["x" * LINE_BYTES_MAX, "x" * LINE_BYTES_MAX + "…"]


def test_the_tail_begins_at_a_line_and_survives_the_cap() -> None:
    capture = Capture(0)
    for number in range(5_000):
        capture.feed(f"line {number}\n".encode())
    tail = capture.tail()
    assert tail.startswith("line ")
    assert tail.endswith("\nline 4999")
    assert len(tail) <= TAIL_BYTES
