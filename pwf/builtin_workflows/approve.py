"""Ask a person before something goes on: go, stop, or revise with words.

Owns what its input means, and the shape of its output. Promises: it ends with an `Approval`, or fails.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from pwf import Choice, Context, Preformatted, Presentation, Text, Workflow, minutes

MINUTES = 60.0  # for which mode auto waits unless its input says otherwise


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is asked.

    `mode` required: only a person says go; auto: when nobody decides in time, the default is taken; skip: nobody is
    asked. `gate`: the run fails unless it is a go, for scripts that read the exit code alone.
    """

    title: str
    summary: str
    details: str = ""
    mode: Literal["required", "auto", "skip"] = "required"
    timeout_minutes: Annotated[float, msgspec.Meta(gt=0)] | None = None
    default: Literal["go", "stop"] | None = None
    gate: bool = False


class Approval(msgspec.Struct, kw_only=True):
    """How it was left, and what was written with it."""

    exit: Literal["go", "stop", "revise"]
    text: str | None = None


flow = Workflow("approve", input=Request, title=lambda ctx: f"approve {ctx.input.title}")


@flow.compute
def begin(ctx: Context[Request]) -> Literal["ask", "skip"]:
    """Whether anybody is asked."""
    wanted = ctx.input
    if wanted.mode == "required" and wanted.default == "go":
        raise ValueError("mode required never goes on without a person: take mode=auto, or default=stop")
    return "skip" if wanted.mode == "skip" else "ask"


@flow.decision(
    audience="operator",
    choices=[
        Choice("go", "Go on"),
        Choice("stop", "Stop", text=Text("Why?", required=False)),
        Choice("revise", "Revise", text=Text("What must change?")),
    ],
    timeout=None,
)
def ask(ctx: Context[Request]) -> Presentation:
    """The proposal, open for as long as the input says."""
    wanted = ctx.input
    shown = (Preformatted(wanted.details),) if wanted.details else ()
    open_minutes, default = wanted.timeout_minutes, wanted.default or "stop"
    if wanted.mode == "auto":
        open_minutes, default = open_minutes or MINUTES, wanted.default or "go"
    if open_minutes is None:
        return ctx.present(wanted.summary, *shown, title=wanted.title)
    timeout = minutes(open_minutes)
    return ctx.present(wanted.summary, *shown, title=wanted.title, timeout=timeout, default=default)


@flow.compute
def go(ctx: Context[Request]) -> Approval:
    """It goes on."""
    return Approval(exit="go")


@flow.compute
def stop(ctx: Context[Request]) -> Approval:
    """It does not."""
    return left(ctx, "stop")


@flow.compute
def revise(ctx: Context[Request]) -> Approval:
    """It does not as it is."""
    return left(ctx, "revise")


def left(ctx: Context[Request], way: Literal["stop", "revise"]) -> Approval:
    """The exit that is no go."""
    text = ctx[ask].text
    if ctx.input.gate:
        raise RuntimeError(f"no go: {way}" + (f", {text}" if text else ""))
    return Approval(exit=way, text=text)


flow.graph(begin.switch(ask=ask, skip=go), ask.switch(go=go, stop=stop, revise=revise))
