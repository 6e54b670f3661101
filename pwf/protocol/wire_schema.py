"""The JSON Schema of `pwf.client.v1`, made from the message structs: for clients in other languages.

`python -m pwf.protocol.wire_schema > docs/protocol.schema.json` writes it; a test holds the file and the structs equal.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pwf.protocol.frames import FRAME_BYTES_MAX, PROTOCOL, ErrorFrame, Event, Hello, Request, Response
from pwf.protocol.operations import OPERATIONS, VIEWS

FRAMES = (Hello, Request, Response, Event, ErrorFrame)


def wire_schema() -> dict[str, Any]:
    """Frames and operations with their definitions (draft 2020-12). `x-operations` maps each operation's name,
    `x-views` each view's.
    """
    bodies = [part for operation in OPERATIONS.values() for part in (operation.payload, operation.result)]
    bodies += [view.body for view in VIEWS.values()]
    types = list(dict.fromkeys([*FRAMES, *bodies]))
    references, definitions = msgspec.json.schema_components(
        types, schema_hook=_any_json, ref_template="#/$defs/{name}"
    )
    reference = dict(zip(types, references, strict=True))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": PROTOCOL,
        "description": f"One line is one frame, a JSON object of at most {FRAME_BYTES_MAX} bytes.",
        "oneOf": [reference[frame] for frame in FRAMES],
        "x-operations": {
            name: {
                "payload": reference[operation.payload],
                "result": reference[operation.result],
                "needs_run": operation.needs_run,
                "changes": operation.changes,
                "guarded": operation.guarded,
            }
            for name, operation in OPERATIONS.items()
        },
        "x-views": {
            name: {"body": reference[view.body], "needs_run": view.needs_run} for name, view in VIEWS.items()
        },
        "$defs": definitions,
    }


def wire_text() -> str:
    """The file's text."""
    return msgspec.json.format(msgspec.json.encode(wire_schema(), order="sorted"), indent=2).decode() + "\n"


def _any_json(_type: type) -> dict[str, Any]:
    return {}  # msgspec.Raw and what stands for it: any JSON


if __name__ == "__main__":
    print(wire_text(), end="")
