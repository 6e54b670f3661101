"""Values checked against JSON Schemas, with the place of each fault.

Owns a cache of compiled schemas. Promises: a fault names where in the value it is (`$.version`), and at most
`FAULTS_SHOWN_MAX` are told; a field that a type lacks is told with the nearest name. Pure computation on bounded
values.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from typing import Any

import jsonschema_rs
import msgspec

from pwf.errors import GraphError, InvalidAnswer, InvalidInput, Rejected
from pwf.protocol.formats import FORMATS
from pwf.protocol.kinds import REQUESTS, RequestKind
from pwf.values import canonical, parse, shortened

VALIDATORS_MAX = 128
FAULTS_SHOWN_MAX = 5
NOTHING, EMPTY = b"null", b"{}"
WHOLE_MAX = 2.0**64  # a larger float stays one: as digits nobody would know it again


class Schemas:
    """Checks values against JSON Schemas; compiled ones are kept.

    Large values are checked in a thread (`apart`). The cache bears that: at worst a schema is compiled twice.
    """

    def __init__(self) -> None:
        self._validators: OrderedDict[bytes, Any] = OrderedDict()

    def check_input(self, workflow: str, schema: dict[str, Any] | None, value: bytes) -> bytes:
        """The input (canonical JSON) as it is kept. Raise `InvalidInput` that says where in it the fault is.

        Where nothing was given (null), and the type is an object, that is one of which all fields are left out.
        """
        value = as_kept(schema, value)
        faults = self._faults(schema, value)
        if faults and value == NOTHING:
            without = self._faults(schema, EMPTY)
            if all(fault.kind.name == "required" for fault in without):
                value, faults = EMPTY, without
        if faults:
            raise InvalidInput(
                f"the input does not fit: {_told(schema, faults)}",
                hint=f"pwf graph {workflow} shows its input",
            )
        return value

    def check_answer(
        self, request_id: str, schema: dict[str, Any] | None, value: bytes, kind: RequestKind
    ) -> None:
        """Raise `InvalidAnswer` that says where in the answer, or in the submission, the fault is."""
        faults = self._faults(schema, value)
        if faults:
            what, verb = ("submission", "submit") if REQUESTS[kind].submitted else ("answer", "answer")
            raise InvalidAnswer(
                f"the {what} does not fit: {_told(schema, faults)}",
                hint=f"pwf {verb} {request_id} shows what is asked",
            )

    def check_output(self, node: str, schema: dict[str, Any] | None, value: bytes) -> bytes:
        """A node's output by a person's word, as it is kept. Raise `InvalidAnswer` that says where the fault is."""
        value = as_kept(schema, value)
        faults = self._faults(schema, value)
        if faults:
            raise InvalidAnswer(
                f"the output does not fit the type of node {node!r}: {_told(schema, faults)}",
                hint="give what the node would have returned: --output JSON",
            )
        return value

    def check_settings(self, run_id: str, schema: dict[str, Any] | None, value: bytes) -> bytes:
        """Settings as they are kept. Raise `InvalidInput` that says where the fault is."""
        value = as_kept(schema, value)
        faults = self._faults(schema, value)
        if faults:
            raise InvalidInput(
                f"the settings would not fit: {_told(schema, faults)}",
                hint=f"pwf settings get {run_id} shows them",
            )
        return value

    def check_adopted(self, run_id: str, name: str, schema: dict[str, Any], value: bytes) -> None:
        """Raise `Rejected` where an output of another run has no place in the present code."""
        faults = self._faults(schema, value)
        if faults:
            raise Rejected(
                f"the output of {name} in run {run_id} is not of the type that the code declares for it now: "
                f"{_told(schema, faults)}",
                hint=f"run that step again (pwf fork {run_id} --from {name}), or take the code of the run "
                "(--code stored)",
            )

    def _faults(self, schema: dict[str, Any] | None, value: bytes) -> list[Any]:
        if schema is None:
            return []
        key = msgspec.json.encode(schema, order="deterministic")
        validator = self._validators.get(key)
        if validator is None:
            validator = self._validators[key] = _compiled(schema)
            if len(self._validators) > VALIDATORS_MAX:
                self._validators.popitem(last=False)
        return list(itertools.islice(validator.iter_errors(parse(value)), FAULTS_SHOWN_MAX + 1))


def _told(schema: dict[str, Any] | None, faults: list[Any]) -> str:
    """The first faults in words, each with its place."""
    told = [words for fault in faults for words in _words(schema, fault)]
    return "; ".join(told[:FAULTS_SHOWN_MAX] + ["…"] * (len(told) > FAULTS_SHOWN_MAX))


def _words(schema: dict[str, Any] | None, fault: Any) -> list[str]:
    where = f"(at {_where(fault.instance_path)})"
    if fault.kind.name == "additionalProperties":
        known = _fields_beside(schema, fault.schema_path)
        return [
            f"there is no field {_said(name)!r}{_nearest(name, known)} {where}"
            for name in fault.kind.unexpected
        ]
    if (
        fault.kind.name == "anyOf"
    ):  # what is wrong with the one alternative that the value may have been meant for
        meant = [
            one for one in fault.kind.context if not any(_is_of_another_type(fault, inner) for inner in one)
        ]
        if len(meant) == 1:
            return [words for inner in meant[0] for words in _words(schema, inner)]
    return [f"{_said(fault.message)} {where}"]


def _is_of_another_type(fault: Any, inner: Any) -> bool:
    return inner.kind.name in ("type", "enum", "const") and inner.instance_path == fault.instance_path


def _fields_beside(schema: Any, path: list[str | int]) -> list[str]:
    """The fields of the object whose `additionalProperties` lies at this path of the schema."""
    for step in path[:-1]:
        schema = schema[step]
    return list(schema.get("properties", ()))


def _nearest(name: str, known: list[str]) -> str:
    import difflib  # only for a mistake

    near = difflib.get_close_matches(name, known, n=1)
    return f", did you mean {near[0]!r}?" if near else ""


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
