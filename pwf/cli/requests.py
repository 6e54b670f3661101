"""`pwf requests`, `pwf answer` and `pwf submit`: the questions that runs have asked, of people and of agents."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, Parser, client, page_limit, say_where_a_list_ends
from pwf.cli.out import Out, UsageError
from pwf.cli.settling import say_settled, until_taken
from pwf.errors import InvalidAnswer, Rejected
from pwf.present import form, text

if TYPE_CHECKING:
    from pwf.client.core import CallReply
    from pwf.client.sync import SyncClient
    from pwf.protocol.kinds import RequestKind
    from pwf.protocol.views import RequestView

EXAMPLE = """pwf answer q7f                            # shows the question and what it takes
pwf answer @last yes
pwf answer q7f ship=no why='the tests hang'
pwf answer run:@last '{"ship": true}'
pwf answer q7f @answer.json --set why=late"""

SUBMIT_EXAMPLE = """pwf submit q7f                            # shows the prompt and what it takes
pwf submit q7f '{"verdict": "ship"}'
pwf submit q7f @review.json --revision 1
pwf submit run:@last verdict=ship why='all tests pass'
pwf submit step '{"verdict": "ship"}'      # what an agent that pwf has started types"""


def add(commands: Commands) -> None:
    parser = commands.add(
        "requests",
        requests,
        "list open requests of every kind, oldest first",
        example="pwf requests\npwf requests --all",
    )
    parser.add_argument("--all", action="store_true", help="settled and cancelled ones too")
    parser.add_argument("--limit", metavar="N", type=page_limit, default=100, help="at most so many (100)")
    parser = commands.add(
        "answer",
        answer,
        "answer a question",
        example=EXAMPLE,
        more="REQUEST is a request's id, a unique prefix of it, @last for the newest question of this project, or\n"
        "run:RUN for the open question of a run. The declared type says how the answer is read: plain words, yes and\n"
        "no, FIELD=VALUE for the fields of an object, or JSON.",
    )
    _value_arguments(
        parser,
        request="the question",
        name="answer",
        takes="words, FIELD=VALUE, JSON, @FILE, or - for JSON on stdin",
        revision="only if its run is still at this revision (pwf show --json)",
    )
    parser = commands.add(
        "submit",
        submit,
        "submit what an agent was asked for, in its place",
        example=SUBMIT_EXAMPLE,
        more="REQUEST is as for pwf answer, and what is typed is read alike. Only a value of the declared type is\n"
        "accepted; it becomes the output of the node that asked. The REQUEST step is the one step that an agent which\n"
        "pwf has started is for.",
    )
    _value_arguments(
        parser,
        request="what the agent was asked",
        name="value",
        takes="JSON, @FILE, FIELD=VALUE, words, or - for JSON on stdin",
        revision="only if the request is still at this revision (pwf requests --json); else at the one it has now",
    )


def _value_arguments(parser: Parser, *, request: str, name: str, takes: str, revision: str) -> None:
    """What names a request and gives its value, with the help of each. `name`: the value's."""
    parser.add_argument("request_id", metavar="REQUEST", help=request)
    parser.add_argument(name, metavar=name.upper(), nargs="*", help=takes)
    parser.add_argument(
        "--set", metavar="FIELD=VALUE", action="append", default=[], help="set a field of it; may be repeated"
    )
    parser.add_argument("--revision", metavar="N", type=int, help=revision)


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
    heads = ["REQUEST", "KIND", "RUN", "NODE", "STATUS", "AGE", "WAITS", "TAKES", "PROMPT"]
    rows: list[list[str]] = []
    for request in listed.requests:
        rows.append(
            [
                text.line(request.request_id, 24),
                request.kind,
                text.line(request.run_id, 24),
                f"{text.line(request.workflow, 24)}.{text.line(request.node, 24)}",
                request.status,
                text.age(request.created_ms, now_ms),
                form.waits(request, now_ms),
                text.line(form.form_line(request.schema), 40),
                form.asked(request, 120),
            ]
        )
    out.table(heads, rows)
    say_where_a_list_ends(len(rows), options.limit, out)
    pending = next((request for request in listed.requests if request.status == "pending"), None)
    if pending is not None:
        out.note(f"for the first, type:  {form.answer_lines(pending)[-1][1]}")
    return exits.OK


def answer(options: argparse.Namespace, out: Out) -> int:
    import msgspec

    from pwf.cli.reading import read_answer
    from pwf.protocol.kinds import PLAIN
    from pwf.protocol.operations import AnswerPayload
    from pwf.values import canonical

    with client() as daemon:
        asked = _asked(daemon, options.request_id, "answer", PLAIN)
        if not options.answer and not options.set:
            return _ask(daemon, asked, options, out)
        value = read_answer(options.answer, options.set, asked.schema)
        payload = AnswerPayload(
            request_id=asked.request_id, answer=msgspec.Raw(canonical(value, what="the answer"))
        )
        reply = daemon.exchange("request.answer", payload, expected_revision=options.revision)
    _say(reply, out)
    return exits.OK


def submit(options: argparse.Namespace, out: Out) -> int:
    import msgspec

    from pwf.cli import own_step
    from pwf.cli.ask import show_question
    from pwf.cli.reading import read_answer
    from pwf.protocol.kinds import SUBMITTED
    from pwf.protocol.operations import SubmitPayload
    from pwf.protocol.own_step import STEP
    from pwf.values import canonical

    if options.request_id == STEP:
        return own_step.submit(options, out)
    with client() as daemon:
        asked = _asked(daemon, options.request_id, "submit", SUBMITTED)
        if not options.value and not options.set:
            if not out.as_json:
                show_question(daemon, asked, out)
            _refuse_closed(asked)
            raise UsageError("no value was given", hint=form.answer_lines(asked)[-1][1])
        value = canonical(read_answer(options.value, options.set, asked.schema), what="the value")
        seen = asked.revision if options.revision is None else options.revision
        payload = SubmitPayload(request_id=asked.request_id, value=msgspec.Raw(value), revision=seen)
        reply = daemon.exchange("request.submit", payload)
    submitted = reply.result
    if submitted.verdict == "rejected":
        raise InvalidAnswer(
            f"the submission is rejected: {submitted.reason}",
            hint=f"correct it, and submit again: pwf submit {submitted.request_id}",
        )
    _say(reply, out, "accepted" if submitted.verdict == "accepted" else "being validated")
    return exits.OK


def _asked(daemon: SyncClient, ref: str, verb: str, kinds: tuple[RequestKind, ...]) -> RequestView:
    """The request that is named. One of another kind is refused with what answers it, before a value is read."""
    from pwf.protocol.operations import RequestListPayload

    payload = RequestListPayload(request=ref, kinds=kinds)
    found: RequestView = daemon.call("request.list", payload).requests[0]
    if found.kind not in kinds:
        raise Rejected(
            f"request {text.line(found.request_id)} is a request of kind {found.kind}; pwf {verb} is not for that",
            hint=form.answer_lines(found)[-1][1],
        )
    return found


def _refuse_closed(asked: RequestView) -> None:
    if asked.status != "pending":
        raise Rejected(
            f"request {text.line(asked.request_id)} is {asked.status}", hint=f"pwf show {asked.run_id}"
        )


def _ask(daemon: SyncClient, asked: RequestView, options: argparse.Namespace, out: Out) -> int:
    """Without an answer: the question and what it takes; where somebody can type, the answer is read here."""
    import msgspec

    from pwf.cli.ask import show_question
    from pwf.cli.patience import is_at_terminal
    from pwf.cli.reading import read_line
    from pwf.protocol.operations import AnswerPayload
    from pwf.values import canonical

    request_id = text.line(asked.request_id)
    _refuse_closed(asked)
    if out.as_json or not (out.is_terminal and is_at_terminal()):
        if not out.as_json:
            show_question(daemon, asked, out)
        raise UsageError("no answer was given", hint=form.answer_lines(asked)[-1][1])
    show_question(daemon, asked, out)

    def send(typed: str) -> CallReply:
        value = canonical(read_line(typed, asked.schema), what="the answer")
        payload = AnswerPayload(request_id=asked.request_id, answer=msgspec.Raw(value))
        return daemon.exchange("request.answer", payload, expected_revision=options.revision)

    reply = until_taken("answer> ", send)
    if reply is None:
        out.print(f"left open; answer it with:  pwf answer {request_id}")
        return exits.NEEDS_PERSON
    _say(reply, out)
    return exits.OK


def _say(reply: CallReply, out: Out, done: str = "answered") -> None:
    say_settled(reply, out, done, reply.result.request_id)
