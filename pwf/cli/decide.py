"""`pwf decisions` and `pwf decide`: what runs ask people to decide, and a person's answer."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pwf.cli import exits
from pwf.cli.commands import Commands, client, page_limit, say_where_a_list_ends
from pwf.cli.out import Out, UsageError
from pwf.cli.settling import say_settled, until_taken
from pwf.errors import Rejected
from pwf.present import form, text

if TYPE_CHECKING:
    from pwf.client.core import CallReply
    from pwf.client.sync import SyncClient
    from pwf.protocol.decision_spec import ChoiceSpec
    from pwf.protocol.decisions import DecisionView

EXAMPLE = """pwf decide                                # lists what is open
pwf decide q7f                            # shows it, and asks
pwf decide q7f ship
pwf decide run:@last fix --text 'the tests hang'
pwf decide q7f fix --text - < notes.txt
pwf decide q7f --link                     # a link that decides it in a browser, once"""


def add(commands: Commands) -> None:
    parser = commands.add(
        "decisions",
        decisions,
        "list open decisions, oldest first",
        example="pwf decisions\npwf decisions --all",
    )
    parser.add_argument("--all", action="store_true", help="those that were decided or closed, too")
    parser.add_argument("--limit", metavar="N", type=page_limit, default=100, help="at most so many (100)")
    parser = commands.add(
        "decide",
        decide,
        "decide what a run asks",
        example=EXAMPLE,
        more="DECISION is an id, a unique prefix of one, @last for the newest of this project, or run:RUN for what a\n"
        "run asks. Only a person may decide: it is refused to a process of a run. The first answer counts; whoever\n"
        "comes later is told what was decided, and by whom.",
    )
    parser.add_argument("decision_id", metavar="DECISION", nargs="?", help="what is to be decided")
    parser.add_argument("choice", metavar="CHOICE", nargs="?", help="one of its choices")
    parser.add_argument("--text", metavar="TEXT", help="what the choice asks for; - reads it from stdin")
    parser.add_argument(
        "--digest", metavar="DIGEST", help="only if it still proposes what had this digest (--json shows it)"
    )
    parser.add_argument(
        "--link",
        action="store_true",
        help="print a link to it: whoever opens it in a browser may decide, once",
    )


def decisions(options: argparse.Namespace, out: Out) -> int:
    from pwf.protocol.decisions import DecisionListPayload

    payload = DecisionListPayload(limit=options.limit)
    if options.all:
        payload = DecisionListPayload(statuses=("pending", "settled", "cancelled"), limit=options.limit)
    with client() as daemon:
        listed = daemon.call("decision.list", payload)
    if out.as_json:
        out.emit(listed)
        return exits.OK
    if not listed.decisions:
        out.note("no decisions" if options.all else "no open decisions")
        return exits.OK
    _table(listed.decisions, out)
    say_where_a_list_ends(len(listed.decisions), options.limit, out)
    pending = next((one for one in listed.decisions if one.request.status == "pending"), None)
    if pending is not None:
        out.note(f"for the first, type:  pwf decide {text.line(pending.request.request_id)}")
    return exits.OK


def _table(found: tuple[DecisionView, ...], out: Out) -> None:
    from pwf.present.decision import winner_line

    now_ms = out.now_ms()
    rows = []
    for one in found:
        request = one.request
        rows.append(
            [
                text.line(request.request_id, 24),
                text.line(request.run_id, 24),
                f"{text.line(request.workflow, 24)}.{text.line(request.node, 24)}",
                text.line(one.audience, 24),
                text.age(request.created_ms, now_ms),
                form.waits(request, now_ms) if one.winner is None else winner_line(one.winner, now_ms),
                text.line(" | ".join(choice.id for choice in one.choices), 40),
                form.asked(request, 120),
            ]
        )
    out.table(["DECISION", "RUN", "NODE", "FOR", "AGE", "WAITS", "CHOICES", "PROPOSAL"], rows)


def decide(options: argparse.Namespace, out: Out) -> int:
    if options.choice is None and not (options.text is None and options.digest is None):
        named = options.decision_id or "DECISION"
        raise UsageError(
            "--text and --digest go with a choice", hint=f"pwf decide {text.line(named)} CHOICE --text TEXT"
        )
    if options.decision_id is None and options.link:
        raise UsageError("--link needs a DECISION", hint="pwf decide @last --link")
    if options.decision_id is None:
        options.all, options.limit = False, 100
        return decisions(options, out)
    if options.link:
        return _link(options, out)
    with client() as daemon:
        view = find_decision(daemon, options.decision_id)
        if options.choice is None:
            return _ask(daemon, view, out)
        words = sys.stdin.read().strip() if options.text == "-" else options.text
        _refuse_without_text(view, options.choice, words)
        reply = daemon.decide(view, options.choice, words, digest=options.digest)
    _say(reply, out)
    return exits.OK


def _link(options: argparse.Namespace, out: Out) -> int:
    """The token is made here: the daemon gets its hash alone."""
    from pwf.config import load_config
    from pwf.protocol.web import LinkPayload, hash_of, new_token

    if options.choice is not None:
        raise UsageError(
            "--link goes without a choice", hint=f"pwf decide {text.line(options.decision_id)} --link"
        )
    token = new_token()
    with client() as daemon:
        payload = LinkPayload(decision_id=options.decision_id, token_hash=hash_of(token))
        made = daemon.call("decision.link", payload)
        url = load_config(daemon.places.config).web.url(f"/answer/{token}")
    if out.as_json:
        out.emit({"decision_id": made.decision_id, "run_id": made.run_id, "url": url})
    else:
        out.print(url)
    return exits.OK


def find_decision(daemon: SyncClient, ref: str) -> DecisionView:
    """The one that is meant."""
    from pwf.protocol.decisions import DecisionListPayload, DecisionView

    found = daemon.call("decision.list", DecisionListPayload(decision_id=ref)).decisions[0]
    assert isinstance(found, DecisionView)
    return found


def show_decision(daemon: SyncClient, view: DecisionView, out: Out) -> None:
    """The whole proposal, what has changed, and what there is to choose."""
    from pwf.present.decision import decision_lines
    from pwf.protocol.decision_spec import shown_of

    run_id = view.request.run_id
    shown = shown_of(daemon.read_value(run_id, view.request.prompt))
    earlier = None
    if view.earlier is not None:
        earlier = shown_of(daemon.read_value(run_id, view.earlier.presentation))
    for line, style in decision_lines(view, shown, earlier, out.now_ms()):
        out.print(out.paint(line, style))


def _refuse_without_text(view: DecisionView, choice_id: str, words: str | None) -> None:
    """The daemon refuses it, too, and doesn't know what was typed."""
    chosen = next((one for one in view.choices if one.id == choice_id), None)
    if view.request.status != "pending" or chosen is None or chosen.text is None:
        return
    if chosen.text.required and not (words or "").strip():
        raise UsageError(
            f"choice {text.line(chosen.id)} needs a text: {text.line(chosen.text.label)}",
            hint=_typed(view, chosen),
        )


def _typed(view: DecisionView, choice: ChoiceSpec) -> str:
    """The whole command that makes a choice."""
    needs_text = choice.text is not None and choice.text.required
    words = " --text 'some text'" if needs_text else ""
    return f"pwf decide {text.line(view.request.request_id)} {text.line(choice.id)}{words}"


def typed_choice(typed: str, view: DecisionView) -> tuple[str, str | None]:
    """What was typed: the id of a choice, and what follows it as its text."""
    choice, _, words = typed.strip().partition(" ")
    return choice.rstrip(":"), words.strip() or None


def _ask(daemon: SyncClient, view: DecisionView, out: Out) -> int:
    """Without a choice: what is proposed; where somebody can type, the choice is read here."""
    from pwf.cli.patience import is_at_terminal

    if out.as_json:
        out.emit(view)
        return exits.OK
    show_decision(daemon, view, out)
    decision_id = text.line(view.request.request_id)
    if view.request.status != "pending":
        raise Rejected(f"decision {decision_id} is closed", hint=f"pwf show {view.request.run_id}")
    if not (out.is_terminal and is_at_terminal()):
        raise UsageError("no choice was given", hint=_typed(view, view.choices[0]))
    reply = until_taken("choice> ", lambda typed: daemon.decide(view, *typed_choice(typed, view)))
    if reply is None:
        out.print(f"left open; decide it with:  pwf decide {decision_id}")
        return exits.NEEDS_PERSON
    _say(reply, out)
    return exits.OK


def _say(reply: CallReply, out: Out) -> None:
    say_settled(reply, out, "decided", reply.result.decision_id, reply.result.choice)
