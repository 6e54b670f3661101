"""Plays what a real program has said, as recorded: `player.py FILE`. Each request gets what followed its like."""

from __future__ import annotations

import json
import sys
from typing import Any


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        recorded = [json.loads(line) for line in file]
    for line in sys.stdin:
        asked = json.loads(line)
        if "command" in recorded[0]:
            answer_pi(asked, recorded)
        else:
            answer_acp(asked, recorded)


def answer_pi(asked: dict[str, Any], recorded: list[dict[str, Any]]) -> None:
    """The response to a command, and after a prompt all events."""
    for said in recorded:
        if said.get("command") == asked["type"]:
            send({**said, "id": asked["id"]})
    if asked["type"] == "prompt":
        for said in recorded:
            if said["type"] != "response":
                send(said)


def answer_acp(asked: dict[str, Any], recorded: list[dict[str, Any]]) -> None:
    """All that was said up to the response to the next request."""
    while recorded:
        said = recorded.pop(0)
        is_response = "method" not in said
        send({**said, "id": asked["id"]} if is_response else said)
        if is_response:
            return


def send(message: dict[str, Any]) -> None:
    print(json.dumps(message, separators=(",", ":")), flush=True)


main()
