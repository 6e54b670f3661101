"""`pwf submit step`: an agent that pwf has started hands in the result of its own step."""

from __future__ import annotations

import argparse
import json

from pwf.cli import exits
from pwf.cli.out import Out, UsageError
from pwf.errors import Conflict, InvalidAnswer, Rejected
from pwf.present import text


def submit(options: argparse.Namespace, out: Out) -> int:
    from pwf.cli.reading import read_answer
    from pwf.client.own_step import read_step, submit_step
    from pwf.values import canonical

    if options.revision is not None:
        raise UsageError(
            "the step of an agent that pwf has started has no revision", hint="leave --revision out"
        )
    schema = json.loads(bytes(read_step().schema))
    if not options.value and not options.set:
        out.print(json.dumps(schema, indent=2))
        raise UsageError("no value was given", hint="pwf submit step JSON")
    answered = submit_step(canonical(read_answer(options.value, options.set, schema), what="the value"))
    reason = text.block(answered.reason)
    if answered.verdict == "rejected":
        raise InvalidAnswer(
            f"that is rejected: {reason}", hint="correct it, and submit again: pwf submit step JSON"
        )
    if answered.verdict == "closed":
        raise Rejected(f"that is rejected, and nothing more is taken: {reason}")
    if answered.verdict == "conflict":
        raise Conflict(reason)
    if out.as_json:
        out.emit({"verdict": "accepted"})
    else:
        out.print("accepted")
    return exits.OK
