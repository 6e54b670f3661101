"""The kinds of nodes, and the kinds of requests: one row each, and whatever differs between kinds is a fact in its row.

Owns the tables. Promises: plain data, light to import. Nobody else names a kind: the store, the daemon, the runner, the
authoring checks, the drawings, the crash lab and the simulation ask for a fact (`tests/tidy/test_kinds.py`).

How to add a node kind:

1. Name it in `NodeKind`, and give it a row in `KINDS`. If it asks something new, the question is a row in `REQUESTS`.
2. Execution: `pwf/runner/kinds/NAME.py` with `KIND = "NAME"` and `run(step)`, which returns `Ended`, `Timer` or
   `Question`; then one line in `RUN` in `pwf/runner/kinds/__init__.py`.
3. Authoring: a decorator in `pwf/workflow/decorators.py`. Options that only this kind has stand in a file of their
   own, as in `shell_options.py`. What `ctx[node]` gives is decided in `check.py`.
4. The store: a kind that finishes, asks or sets a timer needs nothing. A message of its own is a struct in
   `pwf/protocol/runner.py`, decided in `pwf/store/transitions.py`. A new kind of request also stands in the CHECK of
   `requests` in `schema.sql`, and gets an operation that settles it.
5. Drawings: choose a `shape` and a `colour` in the row. A new one of either is drawn in `pwf/present`.
6. Tests: the simulation draws every kind of the table, and executes it by its facts (`tests/sim/runners.py`); the tidy
   test names what is missing. Then docs/authoring.md, and `python -m pwf.protocol.wire_schema >
   docs/protocol.schema.json`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Outcome = Literal["completed", "failed", "timed_out", "cancelled"]
NodeKind = Literal[
    "compute",
    "settings_route",
    "include",
    "action",
    "shell",
    "wait",
    "checkpoint",
    "decision",
    "agent",
    "assistant",
    "notify",
]
RequestKind = Literal["checkpoint", "agent", "assistant", "decision"]
Shape = Literal["box", "framed", "rounded", "hexagon"]
Colour = Literal["blue", "orange", "yellow", "grey", "purple", "green"]

EXECUTED: tuple[Outcome, ...] = ("completed", "failed", "timed_out", "cancelled")
PARKED: tuple[Outcome, ...] = ("completed", "cancelled")
ASKED: tuple[Outcome, ...] = ("completed", "timed_out", "cancelled")


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of every node of a kind. `parks` says that the daemon completes it, and no process waits."""

    pure: bool = False  # may start before the step before it is acknowledged, and run again after a crash
    routes_by_settings: bool = False  # what it found counts only if the settings have not been changed since
    has_effect: bool = False  # must declare an effect; only such a kind may
    publishes: bool = False  # `ctx.publish` is there
    stops_itself: bool = False  # whatever its function is: its runner ends it at its time
    returns_output: bool = False  # the function's value is the output, and its annotation the output's type
    runs_command: bool = False  # the function says which command is run; the output is the command's result
    sets_timer: bool = False  # the function says until when; the output is the time
    enters: bool = False  # an included workflow: the output is its input, and it leads to its start
    asks: RequestKind | None = None  # the function makes a question of this kind; the output is the answer
    prompts: bool = (
        False  # that question is a text which a model reads, and the type of its answer is declared
    )
    headless: bool = False  # where the run has an agent of its own, its runner asks that, and nothing parks
    verbatim: bool = False  # the answer to it is a text as it stands, and no JSON value that a model writes
    notifies: bool = (
        False  # its text is a notice for people; whatever becomes of it, the run goes on as after it
    )
    has_active_timeout: bool = False  # its active time can be limited with `timeout=`
    has_deadline: bool = False  # its question can be open for a time only: `timeout=` says how long
    chooses: bool = False  # between declared choices: the output is the choice, and `timeout=` must be said
    outcomes: tuple[Outcome, ...] = EXECUTED  # what may have a way out; `retry=` needs one that can fail
    decorator: str | None = None  # that makes it, where it is not called as the kind is
    ends: str = "when its function returns"  # how it completes, for people
    shape: Shape  # how it is drawn
    colour: Colour

    @property
    def parks(self) -> bool:
        """Whether the run gives its runner back there (but see `headless`)."""
        return self.sets_timer or self.asks is not None


class RequestFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers a request of a kind, and by what command. `plain`: the operation `request.answer` does it;
    `submitted`: `request.submit` (`reply`: with a text, as an agent says it); `decided`: `decision.answer`. `waits`:
    why the run of node {node} waits, `waits_for`: the same in two words.
    """

    answered_by: Literal["client", "session", "person"]
    command: str | None = None  # with {request}; None: nobody types anything
    plain: bool = False
    submitted: bool = False
    reply: bool = False
    decided: bool = False
    waits: str = "node {node} asked a question, and nobody has answered it"
    waits_for: str = "an answer"

    def how(self, request_id: str) -> str:
        """What to type, or who it is left to."""
        if self.command is None:
            return f"the {self.answered_by} that was asked answers it"
        return self.command.format(request=request_id)


KINDS: dict[NodeKind, NodeFacts] = {
    "compute": NodeFacts(pure=True, returns_output=True, has_active_timeout=True, shape="box", colour="blue"),
    "settings_route": NodeFacts(
        pure=True,
        routes_by_settings=True,
        returns_output=True,
        has_active_timeout=True,
        shape="box",
        colour="blue",
    ),
    "include": NodeFacts(
        pure=True,
        returns_output=True,
        enters=True,
        has_active_timeout=True,
        ends="when the input of what it includes is made",
        shape="box",
        colour="grey",
    ),
    "action": NodeFacts(
        has_effect=True,
        publishes=True,
        returns_output=True,
        has_active_timeout=True,
        shape="framed",
        colour="orange",
    ),
    "shell": NodeFacts(
        has_effect=True,
        publishes=True,
        stops_itself=True,
        runs_command=True,
        has_active_timeout=True,
        ends="when its command has ended",
        shape="framed",
        colour="yellow",
    ),
    "wait": NodeFacts(
        sets_timer=True, outcomes=PARKED, ends="when its time has come", shape="rounded", colour="grey"
    ),
    "checkpoint": NodeFacts(
        asks="checkpoint",
        has_deadline=True,
        outcomes=ASKED,
        ends="when it is answered",
        shape="hexagon",
        colour="purple",
    ),
    "decision": NodeFacts(
        asks="decision",
        has_deadline=True,
        chooses=True,
        outcomes=ASKED,
        ends="when a person has decided",
        shape="hexagon",
        colour="purple",
    ),
    "agent": NodeFacts(
        asks="agent",
        prompts=True,
        headless=True,
        stops_itself=True,
        has_active_timeout=True,
        ends="when what was submitted is accepted",
        shape="rounded",
        colour="green",
    ),
    "assistant": NodeFacts(
        asks="assistant",
        prompts=True,
        headless=True,
        verbatim=True,
        stops_itself=True,
        has_active_timeout=True,
        decorator="agent",
        ends="when the agent's reply is accepted",
        shape="rounded",
        colour="green",
    ),
    "notify": NodeFacts(
        pure=True,
        returns_output=True,
        notifies=True,
        has_active_timeout=True,
        outcomes=PARKED,
        ends="when its function has ended, however it did",
        shape="box",
        colour="grey",
    ),
}

REQUESTS: dict[RequestKind, RequestFacts] = {
    "checkpoint": RequestFacts(answered_by="client", command="pwf answer {request}", plain=True),
    "agent": RequestFacts(
        answered_by="session",
        command="pwf submit {request}",
        submitted=True,
        waits="node {node} asked an agent, and nothing that it submitted has been accepted yet",
        waits_for="an agent",
    ),
    "assistant": RequestFacts(
        answered_by="session",
        command="pwf submit {request}",
        submitted=True,
        reply=True,
        waits="node {node} asked an agent for a reply, and none has been accepted yet",
        waits_for="an agent's reply",
    ),
    "decision": RequestFacts(
        answered_by="person",
        command="pwf decide {request}",
        decided=True,
        waits="node {node} asked for a decision, and nobody has decided",
        waits_for="a decision",
    ),
}

# The kinds that each operation takes.
PLAIN: tuple[RequestKind, ...] = tuple(kind for kind, facts in REQUESTS.items() if facts.plain)
SUBMITTED: tuple[RequestKind, ...] = tuple(kind for kind, facts in REQUESTS.items() if facts.submitted)
DECIDED: tuple[RequestKind, ...] = tuple(kind for kind, facts in REQUESTS.items() if facts.decided)

# What a runner asks at every step, without touching a row: a page that a runner touches first is copied.
PURE_KINDS: frozenset[NodeKind] = frozenset(kind for kind, facts in KINDS.items() if facts.pure)
PUBLISHING_KINDS: frozenset[NodeKind] = frozenset(kind for kind, facts in KINDS.items() if facts.publishes)
