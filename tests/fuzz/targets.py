"""The properties that a coverage-guided run feeds with bytes: name -> module and function."""

from __future__ import annotations

import importlib
from typing import Any

TARGETS = {
    "client-frames": ("test_wire", "test_a_damaged_client_frame_is_a_protocol_error_or_a_frame"),
    "daemon-frames": ("test_wire", "test_a_damaged_daemon_frame_is_a_protocol_error_or_a_frame"),
    "lines": ("test_wire", "test_lines_come_out_as_they_went_in_however_they_are_cut"),
    "runner": ("test_wire", "test_a_damaged_runner_message_is_a_protocol_error_or_a_message"),
    "spawn": ("test_wire", "test_a_damaged_spawn_message_is_a_validation_error_or_a_message"),
    "payloads": ("test_wire", "test_a_damaged_payload_is_a_validation_error_or_a_payload"),
    "values": ("test_values", "test_any_bytes_are_canonical_json_or_an_invalid_value"),
    "types": ("test_types", "test_the_daemon_takes_exactly_what_the_runner_can_decode"),
    "graphs": ("test_graphs", "test_what_an_author_writes_is_a_sound_graph_or_an_error_with_words"),
}


def property_of(target: str) -> Any:
    """The Hypothesis test of a target; `.hypothesis.fuzz_one_input` takes bytes."""
    module, name = TARGETS[target]
    return getattr(importlib.import_module(f"tests.fuzz.{module}"), name)
