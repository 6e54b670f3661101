"""What a reconciling process makes of the daemon's answers."""

from __future__ import annotations

import socket

import pytest

from pwf.protocol.runner import PartAnswer, StepError, encode_line
from pwf.runner.reconcile import DaemonPort
from tests.workflow.manager_author import given


@pytest.mark.parametrize(
    ("verdict", "state"),
    [
        ("apply", "apply"),
        ("observe", "observe"),
        ("applied", "applied"),
        ("abandoned", "abandoned"),
        ("unknown", "ambiguous"),
    ],
)
def test_how_an_effect_stands_is_what_the_daemon_says(verdict, state):
    daemon, process = socket.socketpair()
    with daemon, process:
        daemon.sendall(encode_line([PartAnswer(verdict=verdict)]))
        port = DaemonPort(process, given())
        reserved = port.reserve_effect(key="a", kind="send", request=b"1", mode="manual", observable=True)
    assert (reserved.state, reserved.effect_key) == (state, "u1:reconcile:1/a")


def test_why_the_output_of_what_happened_could_not_be_kept_is_told():
    daemon, process = socket.socketpair()
    with daemon, process:
        why = StepError(code="node_failed", message="no JSON")
        daemon.sendall(encode_line([PartAnswer(verdict="applied", error=why)]))
        port = DaemonPort(process, given())
        reserved = port.reserve_effect(key="a", kind="send", request=b"1", mode="manual", observable=True)
    assert (reserved.state, reserved.error) == ("applied", "no JSON")
