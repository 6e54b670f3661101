"""Names that are put together from others are never two things' name."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pwf.ids import check_id, is_node_id
from pwf.protocol.runner import effect_key, marked_run, run_marker

names = st.from_regex(r"[a1][a1:.]{0,5}", fullmatch=True).map(check_id)
nodes = st.from_regex(r"[a_][a1_]{0,3}", fullmatch=True).filter(is_node_id)
parts = st.text(":/a1", max_size=6)
effects = st.tuples(names, nodes, st.integers(1, 12), parts)


@given(effects, effects)
def test_two_effects_never_share_a_key(
    one: tuple[str, str, int, str], other: tuple[str, str, int, str]
) -> None:
    assert (effect_key(*one) == effect_key(*other)) == (one == other)


def test_a_run_with_a_colon_in_its_name_shares_no_key_with_a_part_of_another() -> None:
    assert effect_key("a", "x", 1, "part:2") != effect_key("a:x:1", "part", 2)


@given(names, st.integers(1, 10**6))
def test_a_marker_gives_back_its_run(run_id: str, generation: int) -> None:
    assert marked_run(run_marker("home", run_id, generation)) == run_id
