"""Values checked against JSON Schemas, with the place of each fault.

Owns a cache of compiled schemas. Promises: a fault names where in the value it is (`$.version`), and at most
`FAULTS_SHOWN_MAX` are told. Pure computation on bounded values (a frame is at most 1 MiB).
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import jsonschema_rs
import msgspec

from pwf.errors import GraphError, InvalidAnswer, InvalidInput
from pwf.protocol.formats import FORMATS
from pwf.values import canonical, parse, shortened

VALIDATORS_MAX = 128
FAULTS_SHOWN_MAX = 5
WHOLE_MAX = 2.0**64  # a larger float stays one: as digits nobody would know it again


class Schemas:
    """Checks values against JSON Schemas; compiled ones are kept.

    Large values are checked in a thread (`apart`). The cache bears that: at worst a schema is compiled twice.
    """

    def __init__(self) -> None:
        self._validators: OrderedDict[bytes, Any] = OrderedDict()

    def check_input(self, schema: dict[str, Any] | None, value: bytes) -> bytes:
        """The input (canonical JSON) as it is kept. Raise `InvalidInput` that says where in it the fault is."""
        value = as_kept(schema, value)
        faults = self._faults(schema, value)
        if faults:
            raise InvalidInput(
                "the input does not fit: " + "; ".join(faults), hint="pwf graph WORKFLOW shows its input"
            )
        return value

    def check_answer(self, schema: dict[str, Any] | None, value: bytes) -> None:
        """Raise `InvalidAnswer` that says where in the answer the fault is."""
        faults = self._faults(schema, value)
        if faults:
            raise InvalidAnswer(
                "the answer does not fit: " + "; ".join(faults), hint="pwf requests shows what is asked"
            )

    def _faults(self, schema: dict[str, Any] | None, value: bytes) -> list[str]:
        if schema is None:
            return []
        key = msgspec.json.encode(schema, order="deterministic")
        validator = self._validators.get(key)
        if validator is None:
            validator = self._validators[key] = _compiled(schema)
            if len(self._validators) > VALIDATORS_MAX:
                self._validators.popitem(last=False)
        faults: list[str] = []
        for fault in validator.iter_errors(parse(value)):
            if len(faults) == FAULTS_SHOWN_MAX:
                faults.append("…")
                break
            faults.append(f"{_said(fault.message)} (at {_where(fault.instance_path)})")
        return faults


def as_kept(schema: dict[str, Any] | None, value: bytes) -> bytes:
    """Canonical JSON as it is kept where a type is declared: whole numbers without a fraction, `3.0` as `3`.

    To JSON Schema both are the same integer; to a runner's decoder and to a switch only one of them is.
    """
    if schema is None or (b"." not in value and b"e" not in value):
        return value
    return canonical(_whole(parse(value)))


def _whole(value: Any) -> Any:
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < WHOLE_MAX else value
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return value


def _compiled(schema: dict[str, Any]) -> Any:
    try:
        return jsonschema_rs.validator_for(
            schema, retriever=_fetch_nothing, validate_formats=True, formats=FORMATS
        )
    except ValueError as error:
        first_line = str(error).partition("\n")[0]
        raise GraphError(
            f"the workflow declares a type that is not a JSON Schema: {first_line}",
            hint="correct the schema in the workflow's file",
        ) from error


def _fetch_nothing(uri: str) -> dict[str, Any]:
    """The daemon goes to no network and reads no file because a schema says so."""
    raise ValueError(f"{uri} is not part of the schema")


def _where(path: list[str | int]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "$" + "".join(steps)


def _said(message: str) -> str:
    return shortened(message, 300)
