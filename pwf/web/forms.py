"""What a browser sends: a form within bounds, its texts as a person has typed them."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from pwf.errors import InvalidAnswer, InvalidArgument, ValueTooLarge
from pwf.present import form
from pwf.web.guard import BODY_BYTES_MAX

FIELDS_MAX = 20


async def read_form(request: Request) -> dict[str, str]:
    """The fields. Raises `ValueTooLarge` and `InvalidArgument`."""
    body = bytearray()
    async with aclosing(request.stream()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > BODY_BYTES_MAX:
                raise ValueTooLarge("what was sent is too large")
    try:
        pairs = parse_qsl(
            bytes(body).decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=FIELDS_MAX
        )
    except ValueError as error:
        raise InvalidArgument("what was sent is no form") from error
    return {name: value.replace("\r\n", "\n") for name, value in pairs}


def read_value(typed: str, schema: dict[str, Any] | None) -> object:
    """The answer to a question: JSON, or the text itself where that may be one. Raises `InvalidAnswer`."""
    kinds = [one.get("type") for one in form.alternatives(schema, schema)] if schema else []
    if kinds == ["string"]:
        return typed
    try:
        return msgspec.json.decode(typed)
    except (msgspec.MsgspecError, RecursionError):
        if not kinds or "string" in kinds:
            return typed
    raise InvalidAnswer(f"that is no {form.form_line(schema)}", hint="write JSON")
