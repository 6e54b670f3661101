"""`pwf requests` and `pwf answer`: the questions that runs have asked."""

from __future__ import annotations

import argparse

from pwf.cli import exits
from pwf.cli.commands import Commands, client, page_limit
from pwf.cli.out import Out
from pwf.present import text

EXAMPLE = """pwf answer q7f '{"verdict": "ship"}'
pwf answer run:@last true
pwf answer q7f @answer.json"""


def add(commands: Commands) -> None:
    parser = commands.add(
        "requests", requests, "list open questions, oldest first", example="pwf requests\npwf requests --all"
    )
    parser.add_argument("--all", action="store_true", help="settled and cancelled ones too")
    parser.add_argument("--limit", metavar="N", type=page_limit, default=100, help="at most so many (100)")
    parser = commands.add(
        "answer",
        answer,
        "answer a question",
        example=EXAMPLE,
        more="REQUEST is a request's id, a unique prefix of it, or run:RUN for the open question of a run.",
    )
    parser.add_argument("request_id", metavar="REQUEST", help="the question")
    parser.add_argument("answer", metavar="JSON", help="the answer: JSON, @FILE, or - for stdin")
    parser.add_argument(
        "--revision",
        metavar="N",
        type=int,
        help="only if its run is still at this revision (pwf show --json)",
    )


def requests(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.operations import RequestListPayload

    if options.all:
        payload = RequestListPayload(statuses=("pending", "settled", "cancelled"), limit=options.limit)
    else:
        payload = RequestListPayload(limit=options.limit)
    with client() as daemon:
        listed = daemon.call("request.list", payload)
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.requests:
        out.note("no requests" if options.all else "no open requests")
        return exits.OK
    now_ms = out.now_ms()
    rows: list[list[str]] = []
    for request in listed.requests:
        deadline = "for ever" if request.deadline_ms is None else text.until(request.deadline_ms, now_ms)
        rows.append(
            [
                text.line(request.request_id, 24),
                text.line(request.run_id, 24),
                f"{text.line(request.workflow, 24)}.{text.line(request.node, 24)}",
                request.kind,
                request.status,
                text.age(request.created_ms, now_ms),
                deadline if request.status == "pending" else "-",
                text.brief(request.prompt, 120),
            ]
        )
    out.table(["REQUEST", "RUN", "NODE", "KIND", "STATUS", "AGE", "WAITS", "PROMPT"], rows)
    return exits.OK


def answer(options: argparse.Namespace, out: Out) -> int:
    import msgspec

    from pwf.cli.typed import json_argument
    from pwf.protocol.operations import AnswerPayload
    from pwf.values import canonical

    value = json_argument(options.answer, "the answer")
    payload = AnswerPayload(
        request_id=options.request_id, answer=msgspec.Raw(canonical(value, what="the answer"))
    )
    with client() as daemon:
        reply = daemon.exchange("request.answer", payload, expected_revision=options.revision)
    answered = reply.result
    if out.as_json:
        out.emit({**msgspec.to_builtins(answered), "adopted": reply.outcome == "adopted"})
        return exits.OK
    already = "already answered so" if reply.outcome == "adopted" else "answered"
    run = f"run {text.line(answered.run_id)}  {out.status(answered.status)}"
    out.print(f"{already}  {text.line(answered.request_id)}  {run}")
    return exits.OK
