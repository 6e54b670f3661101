"""Watch something with a command: check, tell, wait, and repair where somebody has the authority for it.

Owns what its input means, and the shape of its output. Promises: nothing is repaired without the authority that the
input gives; a repair that changes nothing is not tried for ever; it ends, at the latest after the rounds of its input.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

import msgspec

from pwf import Choice, Context, Presentation, ShellResult, Text, Workflow, idempotent, manual, minutes

SHOWN_CHARS = 4_000


class Watch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`check` exits with 0 while all is well. `repair` is what mends it.

    `authority` none: nothing is repaired; ask: a person decides each time; auto: it is repaired at once. `until`
    healthy: it ends when all is well; failed: when it is not and nothing may be done; rounds: when all are over.
    `patience`: after so many repairs in a row that leave the same complaint it ends as stuck.
    """

    check: Annotated[list[str], msgspec.Meta(min_length=1)]
    repair: list[str] = []
    authority: Literal["none", "ask", "auto"] = "ask"
    until: Literal["healthy", "failed", "rounds"] = "rounds"
    every_minutes: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    rounds: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 288
    patience: Annotated[int, msgspec.Meta(ge=1, le=100)] = 3


class Found(msgspec.Struct, kw_only=True):
    """What a round has found. `same`: how many repairs in a row have left this complaint; `repairs`: of all rounds.
    `news`: it is not as in the round before.
    """

    verdict: Literal["rest", "ask", "repair", "end"]
    healthy: bool
    news: bool
    round: int
    complaint: str = ""
    same: int = 0
    repairs: int = 0
    why: str = ""


class Ended(msgspec.Struct, kw_only=True):
    """How it ended: healthy, failed (and nothing may be done), stuck (repairs change nothing), rounds (all are over) or
    stopped (by a person).
    """

    exit: Literal["healthy", "failed", "stuck", "rounds", "stopped"]
    rounds: int
    complaint: str = ""
    text: str | None = None


flow = Workflow(
    "monitor", input=Watch, title=lambda ctx: f"watch {' '.join(ctx.input.check)}", max_steps=100_000
)


@flow.shell(effect=idempotent("check"), ok_exit_codes=tuple(range(256)), timeout=minutes(10))
def check(ctx: Context[Watch]) -> list[str]:
    """Whether all is well."""
    ctx.progress(ctx.visit - 1, ctx.input.rounds, "rounds", label="watching", status="checking", key="watch")
    return ctx.input.check


@flow.compute
def judge(ctx: Context[Watch]) -> Found:
    """What the check says, and what follows from it."""
    result, wanted, earlier = ctx[check], ctx.input, ctx.outputs.get(judge)
    if result.exit_code == 0:
        over = "healthy" if wanted.until == "healthy" else "rounds" if ctx.visit >= wanted.rounds else ""
        news = earlier is not None and not earlier.healthy
        return Found(verdict="end" if over else "rest", healthy=True, news=news, round=ctx.visit, why=over)
    complaint = said_by(result)
    mended = ctx.results.get(repair)
    repairs, same = 0 if mended is None else mended.visit, 0
    if earlier is not None and earlier.complaint == complaint:
        same = earlier.same + (repairs > earlier.repairs)
    may = wanted.repair and wanted.authority != "none"
    if same >= wanted.patience:
        over = "stuck"
    elif not may and wanted.until == "failed":
        over = "failed"
    else:
        over = "rounds" if ctx.visit >= wanted.rounds else ""
    act: Literal["rest", "ask", "repair"] = (
        "rest" if not may else "ask" if wanted.authority == "ask" else "repair"
    )
    return Found(
        verdict="end" if over else act,
        healthy=False,
        news=earlier is None or earlier.complaint != complaint,
        round=ctx.visit,
        complaint=complaint,
        same=same,
        repairs=repairs,
        why=over,
    )


def said_by(result: ShellResult) -> str:
    """What tells one complaint from another."""
    text = (result.stderr + result.stdout).strip()
    return f"exit code {result.exit_code}" + (f": {text[-SHOWN_CHARS:]}" if text else "")


@flow.notify
def tell(ctx: Context[Watch]) -> str:
    """What has changed since the round before."""
    found, named = ctx[judge], " ".join(ctx.input.check)
    return f"{named}: all is well again" if found.healthy else f"{named} fails: {found.complaint}"


@flow.compute
def act(ctx: Context[Watch]) -> Literal["rest", "ask", "repair", "end"]:
    """What follows from the round."""
    return ctx[judge].verdict


@flow.decision(
    audience="operator",
    choices=[
        Choice("repair", "Repair it"),
        Choice("leave", "Leave it, and go on watching"),
        Choice("stop", "Stop watching", text=Text("Why?", required=False)),
    ],
    timeout=None,
)
def authorize(ctx: Context[Watch]) -> Presentation:
    """A person's word on one repair."""
    found = ctx[judge]
    return ctx.present(
        f"The check {' '.join(ctx.input.check)!r} fails. Run {' '.join(ctx.input.repair)!r}?",
        found.complaint,
        title="Repair what is watched",
        fields={"round": found.round, "repairs that left the same complaint": found.same},
    )


@flow.shell(effect=manual("repair"), timeout=minutes(60), ok_exit_codes=tuple(range(256)))
def repair(ctx: Context[Watch]) -> list[str]:
    """Mend it. Whether that has helped, the next check says."""
    return ctx.input.repair


@flow.wait
def rest(ctx: Context[Watch]) -> timedelta:
    """Until the next round."""
    return minutes(ctx.input.every_minutes)


@flow.notify(kind="final")
def close(ctx: Context[Watch]) -> str:
    """That it is watched no more."""
    ended = left(ctx)
    told = f": {ended.complaint}" if ended.complaint else ""
    return f"{' '.join(ctx.input.check)} is watched no more ({ended.exit}, round {ended.rounds}){told}"


@flow.compute
def end(ctx: Context[Watch]) -> Ended:
    """How it ended."""
    return left(ctx)


def left(ctx: Context[Watch]) -> Ended:
    """How it ended, as the last round and the last word of a person have it."""
    found, said = ctx[judge], ctx.outputs.get(authorize)
    if found.verdict != "end":
        return Ended(
            exit="stopped", rounds=found.round, complaint=found.complaint, text=said.text if said else None
        )
    return Ended(exit=found.why, rounds=found.round, complaint=found.complaint)  # type: ignore[arg-type]


flow.graph(
    check >> judge,
    judge.switch(on="news", cases={True: tell, False: act}),
    tell >> act,
    act.switch(rest=rest, ask=authorize, repair=repair, end=close),
    authorize.switch(repair=repair, leave=rest, stop=close),
    close >> end,
    repair >> rest,
    rest >> check,
)
