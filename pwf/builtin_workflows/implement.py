"""Have agents do a task in a git repository: plan, work, verify against the base revision, review, decide, finish.

Owns what its input means, and the shape of its output. Promises: it begins on a clean work tree; nothing counts as done
that its check or its review refuses, unless a person takes it; what was made is never thrown away: without a commit it
is left in the work tree.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf import (
    Choice,
    Context,
    Diff,
    Preformatted,
    Presentation,
    ShellResult,
    Text,
    Workflow,
    idempotent,
    minutes,
)

Words = Annotated[  # as a person can be shown them
    str, msgspec.Meta(min_length=1, max_length=2_000, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$")
]
DIFF_CHARS = 150_000  # that a reviewer reads
SHOWN_CHARS = 12_000  # of a diff or of what a command prints, to a person and to the agent that mends it

# What changed since the base, also in files that git does not know yet. The person's own index is left alone.
CHANGES = """
index=$(mktemp -d) && trap 'rm -r "$index"' EXIT && export GIT_INDEX_FILE=$index/index
git read-tree "$1" && git add --all && git diff --cached "$1"
"""
BASE = """
if [ -n "$(git status --porcelain)" ]; then
  echo "the work tree is not clean; commit or stash first:" >&2; git status --short >&2; exit 1
fi
git rev-parse --verify "$1^{commit}"
"""
COMMIT = """
git add --all && { git diff --cached --quiet || git commit --quiet --message="$1" >&2; } && git rev-parse HEAD
"""


class Task(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`verify`: the words of a command that exits with 0 when all is well. `base`: what the work is compared with.

    `plan`: an agent plans first. `rounds`: how often agents work on it, unless a person says more. `decide` ask: a
    person takes it or not; auto: it is taken when check and review accept it. `commit`: the message of the commit that
    is made of it; none is made without one.
    """

    task: Annotated[str, msgspec.Meta(min_length=1)]
    verify: Annotated[list[str], msgspec.Meta(min_length=1)]
    base: str = "HEAD"
    plan: bool = True
    rounds: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3
    decide: Literal["ask", "auto"] = "ask"
    commit: str | None = None


class Work(msgspec.Struct, kw_only=True):
    """What an agent says of its work. `left`: what it has not done."""

    summary: Words
    left: list[str] = []


class Review(msgspec.Struct, kw_only=True):
    """What another one says of it. `findings`: what must change."""

    verdict: Literal["good", "change"]
    findings: list[Words] = []


class Finished(msgspec.Struct, kw_only=True):
    """How it was left.

    accepted: it counts; unsettled: check or review still refuse it after all rounds; dropped: a person did not want it.
    `was`: whether the check passed on the base. `commit`: what was made of it.
    """

    exit: Literal["accepted", "unsettled", "dropped"]
    base: str
    rounds: int
    was: bool
    verified: bool
    summary: str = ""
    findings: list[str] = []
    commit: str | None = None
    text: str | None = None


flow = Workflow("implement", input=Task, title=lambda ctx: f"implement: {ctx.input.task}", max_steps=1_000)


@flow.shell(effect=idempotent("base"))
def base(ctx: Context[Task]) -> list[str]:
    """The revision that it begins at, and that nothing else is in the work tree."""
    return ["sh", "-c", BASE, "base", ctx.input.base]


@flow.shell(effect=idempotent("verify"), ok_exit_codes=tuple(range(256)), timeout=minutes(60))
def before(ctx: Context[Task]) -> list[str]:
    """Whether the check passes without the work."""
    return ctx.input.verify


@flow.compute
def begin(ctx: Context[Task]) -> Literal["plan", "work"]:
    """Whether it is planned first."""
    return "plan" if ctx.input.plan else "work"


plan = flow.include("plan.py", input=lambda ctx: {"task": ctx.input.task}, id="plan")


@flow.agent(returns=Work, timeout=minutes(120))
def work(ctx: Context[Task]) -> str:
    """The work, or the mending of what was found."""
    parts = [
        f"Do this task in this repository: change its files. It is checked with {' '.join(ctx.input.verify)!r}, and "
        f"then another agent reviews the difference to revision {revision(ctx)}.\n\nThe task:\n{ctx.input.task}"
    ]
    made = ctx.outputs.get(plan)
    if made is not None:
        parts.append(f"The plan:\n{msgspec.json.format(msgspec.json.encode(made)).decode()}")
    parts += refused(ctx)
    said = ctx.outputs.get(decide)
    if said is not None:
        parts.append(f"A person says:\n{said.text}")
    return "\n\n".join(parts)


def refused(ctx: Context[Task]) -> list[str]:
    """What is wrong with the work of the round before."""
    if ctx.outputs.get(work) is None:
        return (
            [] if passed(ctx[before]) else [f"The check fails already on the base:\n{printed(ctx[before])}"]
        )
    found = ["You, or another agent, have worked on it before: look at the work tree first."]
    if not passed(ctx[verify]):
        found.append(f"The check has failed since:\n{printed(ctx[verify])}")
    elif not ctx[changes].stdout.strip():
        found.append("Nothing is other than on the base.")
    elif findings(ctx):
        found.append("The review wants this changed:\n" + "\n".join(f"- {one}" for one in findings(ctx)))
    return found


@flow.shell(effect=idempotent("verify"), ok_exit_codes=tuple(range(256)), timeout=minutes(60))
def verify(ctx: Context[Task]) -> list[str]:
    """Whether the check passes now."""
    return ctx.input.verify


@flow.shell(effect=idempotent("diff"))
def changes(ctx: Context[Task]) -> list[str]:
    """What is other than on the base."""
    return ["sh", "-c", CHANGES, "changes", revision(ctx)]


@flow.compute
def checked(ctx: Context[Task]) -> Literal["review", "work", "decide", "unsettled"]:
    """Whether there is something to review."""
    return "review" if passed(ctx[verify]) and ctx[changes].stdout.strip() else further(ctx)


@flow.agent(returns=Review, validate=lambda ctx, value: reasoned(value), timeout=minutes(60))
def review(ctx: Context[Task]) -> str:
    """Another agent's word on it."""
    diff = ctx[changes].stdout
    cut = f" (the first {DIFF_CHARS} of {len(diff)} characters)" if len(diff) > DIFF_CHARS else ""
    return (
        "Review this difference: does it do the task, all of it and nothing else, and is it right? Change nothing. "
        "Say `good`, or `change` with what must change.\n\n"
        f"The task:\n{ctx.input.task}\n\nThe difference to {revision(ctx)}{cut}:\n{diff[:DIFF_CHARS]}"
    )


def reasoned(value: Review) -> str | None:
    """What is wrong with a review."""
    return "say what must change, in findings" if value.verdict == "change" and not value.findings else None


@flow.compute
def reviewed(ctx: Context[Task]) -> Literal["work", "decide", "unsettled", "keep"]:
    """What follows from the review."""
    if ctx[review].verdict == "change":
        return further(ctx)
    return "decide" if ctx.input.decide == "ask" else "keep"


def further(ctx: Context[Task]) -> Literal["work", "decide", "unsettled"]:
    """Who goes on with what is refused."""
    if ctx.results[work].visit < ctx.input.rounds:
        return "work"
    return "decide" if ctx.input.decide == "ask" else "unsettled"


@flow.decision(
    audience="operator",
    choices=[
        Choice("take", "Take it"),
        Choice("again", "Work on it again", text=Text("What must change?")),
        Choice("drop", "Do not take it", text=Text("Why?", required=False)),
    ],
    timeout=None,
)
def decide(ctx: Context[Task]) -> Presentation:
    """A person's word."""
    diff = ctx[changes].stdout
    blocks: list[Diff | Preformatted | str] = [ctx[work].summary, *findings(ctx)[:20]]
    if not passed(ctx[verify]):
        blocks.append(Preformatted(printed(ctx[verify])))
    blocks.append(Diff(visible(diff[:SHOWN_CHARS])) if diff.strip() else "Nothing has changed.")
    return ctx.present(
        visible(ctx.input.task[:SHOWN_CHARS]),
        *blocks,
        title="Take what was implemented",
        fields={
            "check": "passes" if passed(ctx[verify]) else "fails",
            "check on the base": "passed" if passed(ctx[before]) else "failed",
            "rounds": ctx.results[work].visit,
            "difference": f"{len(diff)} characters to {revision(ctx)[:12]}",
        },
    )


@flow.compute
def keep(ctx: Context[Task]) -> bool:
    """Whether a commit is made of it."""
    return ctx.input.commit is not None


@flow.shell(effect=idempotent("commit"))
def commit(ctx: Context[Task]) -> list[str]:
    """The commit. What an agent has committed itself stays as it is."""
    return ["sh", "-c", COMMIT, "commit", ctx.input.commit or ""]


@flow.compute
def finish(ctx: Context[Task]) -> Finished:
    """It counts."""
    made = ctx.outputs.get(commit)
    return left(ctx, "accepted", commit=None if made is None else made.stdout.strip())


@flow.compute
def unsettled(ctx: Context[Task]) -> Finished:
    """It is refused to the end."""
    return left(ctx, "unsettled")


@flow.compute
def dropped(ctx: Context[Task]) -> Finished:
    """A person did not want it, or its plan."""
    said = ctx.outputs.get(decide) or ctx[plan]
    return left(ctx, "dropped", text=said.text)


def left(
    ctx: Context[Task],
    way: Literal["accepted", "unsettled", "dropped"],
    *,
    commit: str | None = None,
    text: str | None = None,
) -> Finished:
    """How it was left."""
    worked, proved = ctx.results.get(work), ctx.outputs.get(verify)
    return Finished(
        exit=way,
        base=revision(ctx),
        rounds=0 if worked is None else worked.visit,
        was=passed(ctx[before]),
        verified=proved is not None and passed(proved),
        summary="" if worked is None else ctx[work].summary,
        findings=findings(ctx),
        commit=commit,
        text=text,
    )


def revision(ctx: Context[Task]) -> str:
    """The base."""
    return ctx[base].stdout.strip()


def passed(result: ShellResult) -> bool:
    """Whether a check did."""
    return result.exit_code == 0


def printed(result: ShellResult) -> str:
    """The end of what a check said, as people and agents read it."""
    return visible(f"{result.stdout}{result.stderr}\nexit code {result.exit_code}"[-SHOWN_CHARS:])


def visible(text: str) -> str:
    """The text without what only a terminal understands."""
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


def findings(ctx: Context[Task]) -> list[str]:
    """What the review of this round wants changed: an earlier one is of other work."""
    return ctx[review].findings if ctx.outputs.get(checked) == "review" else []


flow.graph(
    base >> before,
    before >> begin,
    begin.switch(plan=plan, work=work),
    plan.switch(planned=work, stopped=dropped),
    work >> verify,
    verify >> changes,
    changes >> checked,
    checked.switch(review=review, work=work, decide=decide, unsettled=unsettled),
    review >> reviewed,
    reviewed.switch(work=work, decide=decide, unsettled=unsettled, keep=keep),
    decide.switch(take=keep, again=work, drop=dropped),
    keep.switch(cases={True: commit, False: finish}),
    commit >> finish,
)
