"""What is kept has no secret in it, however it arrives."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pwf.protocol.masking import Masks
from pwf.protocol.step_output import OutputFile
from pwf.runner.base.failure import bounded
from pwf.values import canonical, shortened

SECRET = 'hunter"2-ü'


def masks(*values: str) -> Masks:
    made = Masks()
    for value in values:
        made.add(value)
    return made


def test_without_values_nothing_is_changed() -> None:
    assert not Masks()
    assert Masks().text("all") == "all"


def test_a_value_is_found_in_text_in_bytes_and_in_json() -> None:
    known = masks(SECRET)
    assert known.text(f"<{SECRET}>") == "<***>"
    assert known.data(f"<{SECRET}>".encode()) == b"<***>"
    value = {"a": [f"x{SECRET}y", 1, None], SECRET: True}
    assert json.loads(known.json(canonical(value))) == {"a": ["x***y", 1, None], "***": True}


def test_json_stays_json_where_a_value_stands_in_a_number_or_between_texts() -> None:
    known = masks("1234", '","')
    assert known.json(b'["a","b",1234567]') == b'["a","b",1234567]'


def test_a_value_is_found_in_json_within_json_however_that_is_written() -> None:
    known = masks('tok"Xq7\\Kp2', "pässword-1")
    for secret in ('tok"Xq7\\Kp2', "pässword-1"):
        for inner in (json.dumps({"pw": secret}), canonical({"pw": secret}).decode()):
            for whole in (inner, json.dumps([inner]), canonical([inner]).decode()):
                kept = known.json(canonical({"log": whole})).decode()
                assert "***" in kept
                assert "Kp2" not in kept
                assert "ssword" not in kept


def test_of_a_value_within_which_a_text_was_cut_no_large_part_is_kept() -> None:
    known = masks("the-whole-long-secret")
    assert known.text(shortened("x the-whole-long-secret and more", 32)) == "x *** and more"
    assert "the-whole" not in known.text(shortened("x the-whole-long-secret" + "y" * 40, 32))
    for cut in range(100, 180):
        text = bounded("a" * 40 + "the-whole-long-secret" * 9, cut)
        assert "whole-long" not in known.text(text)


def test_each_line_of_a_value_is_found() -> None:
    assert masks("-----BEGIN\nabcdef\n").text("abcdef and abc") == "*** and abc"


def test_the_longer_value_is_taken_out_first() -> None:
    assert masks("token", "token-and-more").text("token-and-more token") == "*** ***"


@given(st.lists(st.sampled_from([b"a", b"ab", b"abab", b"abac", b"\n", b"x"])), st.integers(1, 5))
def test_however_a_stream_is_cut_it_is_kept_as_if_it_had_come_whole(parts: list[bytes], size: int) -> None:
    known = masks("ababac", "aba-")
    whole = b"".join(parts)
    kept, held = b"", b""
    for start in range(0, len(whole), size):
        more, held = known.piece(held, whole[start : start + size])
        kept += more
    assert known.data(whole) == kept + known.data(held)


@given(
    st.lists(st.sampled_from(["user", ":pass", "word", "user:password", "ord-x", "-x-y", "z"])),
    st.integers(1, 9),
)
def test_values_that_share_characters_are_both_taken_out_however_the_stream_is_cut(
    parts: list[str], size: int
) -> None:
    known = masks("user", "user:password", "word-x-y")
    whole = "".join(parts).encode()
    kept, held = b"", b""
    for start in range(0, len(whole), size):
        more, held = known.piece(held, whole[start : start + size])
        kept += more
    kept += known.data(held)
    assert not any(value in kept for value in (b"user", b"user:password", b"word-x-y"))


def test_a_file_has_no_value_that_came_in_two_pieces_and_all_else(tmp_path: Path) -> None:
    file = OutputFile(str(tmp_path), 1, "out", 4_096, masks("s3cret-value"))
    for piece in (b"first s3cr", b"et-value, then s3c"):
        file.write(piece)
    size = file.close()
    assert (tmp_path / "1.out").read_bytes() == b"first ***, then s3c"
    assert size == len(b"first ***, then s3c")


def test_a_large_part_of_a_value_at_the_end_of_a_file_is_not_kept(tmp_path: Path) -> None:
    file = OutputFile(str(tmp_path), 1, "out", 4_096, masks("s3cret-value"))
    file.write(b"all but the last: s3cret-valu")
    file.close()
    assert (tmp_path / "1.out").read_bytes() == b"all but the last: ***"
