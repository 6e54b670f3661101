"""`pwf graph` says what the input is: each field with its type, and whether it must be given."""

from __future__ import annotations

from typing import Literal

import msgspec

from pwf.present.form import input_lines


class Place(msgspec.Struct):
    """Nested."""

    city: str


class Input(msgspec.Struct):
    """Every kind of field."""

    version: str
    kind: Literal["a", "b"]
    places: list[Place] = []
    top: int = 10
    note: str | None = None
    home: Place | None = None


def test_each_field_shows_its_type_and_whether_it_is_required() -> None:
    (schema,), components = msgspec.json.schema_components([Input], ref_template="#/$defs/{name}")
    lines = input_lines({**schema, "$defs": components})
    assert lines[:3] == ["input:", "  version: text, required", '  kind: "a" | "b", required']
    assert "  places: list of object = []" in lines
    assert "  top: whole number = 10" in lines
    assert "  note: text or null = null" in lines


def test_a_workflow_without_an_input_type_takes_any_json() -> None:
    assert input_lines(None) == ["input: any JSON"]
    assert input_lines({"type": "string"}) == ["input: text"]


def test_a_schema_that_refers_to_itself_ends() -> None:
    loop = {
        "$ref": "#/$defs/N",
        "$defs": {"N": {"type": "object", "properties": {"next": {"$ref": "#/$defs/N"}}}},
    }
    assert 1 < len(input_lines(loop)) < 10
