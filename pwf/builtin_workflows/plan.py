"""Have an agent make a plan: frame the task, find candidates, choose one, write it down.

Owns what its input means, and the shape of its output. Promises: several ways are thought of before one is taken; where
a person is to choose, no plan is written before one has.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from pwf import Bullets, Choice, Context, Presentation, Section, Text, Workflow, minutes

SHOWN_CHARS = 1_000  # of one text, to a person who chooses
Line = Annotated[  # as a person can be shown it
    str, msgspec.Meta(min_length=1, max_length=2_000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$")
]


class Wanted(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`context`: what is known of it. `candidates`: how many ways at least. `ask`: a person chooses, else the agent."""

    task: Annotated[str, msgspec.Meta(min_length=1)]
    context: str = ""
    candidates: Annotated[int, msgspec.Meta(ge=2, le=8)] = 3
    ask: bool = False


class Frame(msgspec.Struct, kw_only=True):
    """What the task is."""

    goal: Line
    facts: list[Line]
    bounds: list[Line]
    done_when: Annotated[list[Line], msgspec.Meta(min_length=1)]


class Candidate(msgspec.Struct, kw_only=True):
    """One way to do it."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")]
    idea: Line
    risks: list[Line]


class Candidates(msgspec.Struct, kw_only=True):
    """All of them."""

    candidates: Annotated[list[Candidate], msgspec.Meta(max_length=12)]


class Pick(msgspec.Struct, kw_only=True):
    """The best one, and why."""

    name: str
    why: Line


class Step(msgspec.Struct, kw_only=True):
    """A part of the plan, and how one sees that it is done."""

    does: Line
    verified_by: Line


class Written(msgspec.Struct, kw_only=True):
    """The plan itself."""

    title: Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
    steps: Annotated[list[Step], msgspec.Meta(min_length=1, max_length=50)]


class Plan(msgspec.Struct, kw_only=True):
    """What is handed on."""

    title: str
    goal: str
    done_when: list[str]
    way: str
    steps: list[Step]


class Stopped(msgspec.Struct, kw_only=True):
    """A person wanted none of it."""

    text: str | None = None


flow = Workflow("plan", input=Wanted, title=lambda ctx: f"plan: {ctx.input.task}")


def shown(value: object) -> str:
    """A value, as an agent reads it."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()


@flow.agent(returns=Frame, timeout=minutes(60))
def frame(ctx: Context[Wanted]) -> str:
    """What the task is."""
    known = f"\n\nWhat is known:\n{ctx.input.context}" if ctx.input.context else ""
    return (
        "Frame this task before anybody plans it. Look at the project, and change nothing. Say the goal, the facts "
        "that you found, the bounds that hold, and by what one sees that it is done.\n\n"
        f"The task:\n{ctx.input.task}{known}"
    )


def several(ctx: Context[Wanted], value: Candidates) -> str | None:
    """What is wrong with the candidates."""
    names = {candidate.name for candidate in value.candidates}
    if len(names) < len(value.candidates):
        return "two candidates have the same name"
    return f"give {ctx.input.candidates} or more" if len(names) < ctx.input.candidates else None


@flow.agent(returns=Candidates, validate=several, timeout=minutes(60))
def find(ctx: Context[Wanted]) -> str:
    """Ways to do it."""
    return (
        f"Find at least {ctx.input.candidates} ways to do this task that really differ, each with its risks. Change "
        f"nothing.\n\nThe task:\n{ctx.input.task}\n\nIts frame:\n{shown(ctx[frame])}"
    )


def one_of_them(ctx: Context[Wanted], value: Pick) -> str | None:
    """What is wrong with a choice."""
    names = [candidate.name for candidate in ctx[find].candidates]
    return None if value.name in names else f"there is no candidate {value.name!r}: it is one of {names}"


@flow.agent(returns=Pick, validate=one_of_them, timeout=minutes(60))
def choose(ctx: Context[Wanted]) -> str:
    """The best of them."""
    return (
        "Choose the candidate that reaches the goal within the bounds at the least risk, and say why.\n\n"
        f"The frame:\n{shown(ctx[frame])}\n\nThe candidates:\n{shown(ctx[find])}"
    )


@flow.compute
def whose(ctx: Context[Wanted]) -> bool:
    """Whether a person has the last word."""
    return ctx.input.ask


@flow.decision(
    audience="operator",
    choices=[
        Choice("take", "Take the one that the agent chose"),
        Choice("other", "Take another way", text=Text("Which one?")),
        Choice("stop", "Make no plan", text=Text("Why?", required=False)),
    ],
    timeout=None,
)
def confirm(ctx: Context[Wanted]) -> Presentation:
    """A person's choice."""
    pick = ctx[choose]
    blocks: list[str | Section | Bullets] = [ctx[frame].goal[:SHOWN_CHARS]]
    for one in ctx[find].candidates:
        blocks += [Section(one.name), one.idea[:SHOWN_CHARS]]
        if one.risks:
            blocks.append(Bullets(tuple(risk[:200] for risk in one.risks[:5])))
    return ctx.present(f"The agent would take {pick.name!r}: {pick.why}", *blocks, title="Which way to take")


@flow.agent(returns=Written, timeout=minutes(60))
def write(ctx: Context[Wanted]) -> str:
    """The plan of the way that was chosen."""
    return (
        "Write the plan: steps in their order, each with how one sees that it is done. Change nothing.\n\n"
        f"The task:\n{ctx.input.task}\n\nIts frame:\n{shown(ctx[frame])}\n\nThe candidates:\n{shown(ctx[find])}\n\n"
        f"The way that was chosen: {way(ctx)}"
    )


def way(ctx: Context[Wanted]) -> str:
    """By whose word which candidate it is."""
    said = ctx.outputs.get(confirm)
    return ctx[choose].name if said is None or said.choice == "take" else str(said.text)


@flow.compute
def planned(ctx: Context[Wanted]) -> Plan:
    """What is handed on."""
    framed, made = ctx[frame], ctx[write]
    return Plan(
        title=made.title, goal=framed.goal, done_when=framed.done_when, way=way(ctx), steps=made.steps
    )


@flow.compute
def stopped(ctx: Context[Wanted]) -> Stopped:
    """A person wanted none of it."""
    return Stopped(text=ctx[confirm].text)


flow.graph(
    frame >> find,
    find >> choose,
    choose >> whose,
    whose.switch(cases={True: confirm, False: write}),
    confirm.switch(take=write, other=write, stop=stopped),
    write >> planned,
)
