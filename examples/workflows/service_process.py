"""One process of a service, as a run: examples/resources/service.py starts, watches and cancels it."""

from __future__ import annotations

import msgspec

from pwf import Workflow, idempotent


class Process(msgspec.Struct, forbid_unknown_fields=True):
    command: list[str]
    cwd: str = ""
    env: dict[str, str] = {}


flow = Workflow("service_process", input=Process, title=lambda ctx: " ".join(ctx.input.command)[:80])


@flow.shell(
    effect=idempotent("process"),
    timeout=None,
    cwd=lambda ctx: ctx.input.cwd or ".",
    env=lambda ctx: ctx.input.env,
)
def process(ctx):
    return ctx.input.command
