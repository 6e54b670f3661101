"""What each tool takes. The schemas that hosts see are made of these: plain objects, without references or choices
between types, since not every provider takes those.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pwf.errors import InvalidArgument
from pwf.values import parse

RUN = "The id of a run, or a unique prefix of it."
REQUEST = "The request that my_step named."

Run = Annotated[str, Meta(description=RUN, max_length=512)]
Request = Annotated[str, Meta(description=REQUEST, max_length=512)]
Revision = Annotated[int, Meta(description="The revision that my_step named.", ge=1)]
Key = Annotated[
    str,
    Meta(
        description="A word of yours for this one occasion. The same call with the same key is made once; another key "
        "makes another.",
        max_length=128,
    ),
]
Wait = Annotated[
    int, Meta(description="Wait up to so many seconds; the answer says when to ask again.", ge=0, le=3600)
]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No fields."""


class Attach(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    id: Annotated[
        str,
        Meta(
            description="An id of your own, the same whenever you come back: you go on with the runs of that session. "
            "Without one it is a new session.",
            max_length=128,
        ),
    ] = ""


class MyStep(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait_s: Wait = 30


class Result(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    value: (
        Annotated[dict[str, Any], Meta(description="The result, where the step wants an object.")] | UnsetType
    ) = UNSET
    json: (
        Annotated[
            str, Meta(description="The result as JSON text, where the step wants anything but an object.")
        ]
        | UnsetType
    ) = UNSET


class Submit(Result, frozen=True, kw_only=True, forbid_unknown_fields=True):
    request: Request
    revision: Revision
    text: Annotated[str, Meta(description="Your reply, where the step asks for your words.")] | UnsetType = (
        UNSET
    )


class Update(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    request: Request
    text: Annotated[str, Meta(description="One line.", max_length=2000)]
    revision: Revision


class Ask(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    request: Request
    question: Annotated[str, Meta(description="What you would like to know.", max_length=8000)]
    revision: Revision


class OfRun(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    run: Run


class Status(OfRun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    wait_s: Wait = 0


class Start(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    workflow: Annotated[str, Meta(description="A name that the tool workflows lists.", max_length=4096)]
    input: Annotated[dict[str, Any], Meta(description="The input, as the workflow declares it.")] = {}
    key: Key = ""


class Pause(OfRun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    now: Annotated[bool, Meta(description="Stop the running step, instead of letting it end.")] = False


class Cancel(OfRun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    reason: Annotated[str, Meta(description="Why, for the history of the run.", max_length=4096)] = ""


class Restart(OfRun, frozen=True, kw_only=True, forbid_unknown_fields=True):
    key: Key = ""


def schema_of(arguments: type[Arguments], more: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments. `more`: properties that the connection asks for, all of them required."""
    _, found = msgspec.json.schema_components([arguments], ref_template="{name}")
    schema = found[arguments.__name__]
    return {
        "type": "object",
        "properties": {**more, **schema.get("properties", {})},
        "required": [*more, *schema.get("required", ())],
        "additionalProperties": False,
    }


def result_of(given: Result, *, text: str | UnsetType = UNSET) -> Any:
    """The one value that was given, in one of its forms."""
    forms = [form for form in (given.value, given.json, text) if form is not UNSET]
    if len(forms) != 1:
        other = "; or text, your reply" if isinstance(given, Submit) else ""
        raise InvalidArgument(f"give one of value, an object; json, a JSON text{other}")
    return parse(given.json, what="json") if isinstance(given.json, str) else forms[0]


def read(arguments: type[Arguments], given: dict[str, Any]) -> Any:
    """What a host gave, typed. Raises `InvalidArgument`, whose text says what was wrong, for a model to correct."""
    try:
        return msgspec.convert(given, type=arguments)
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"the arguments do not fit: {error}") from error
