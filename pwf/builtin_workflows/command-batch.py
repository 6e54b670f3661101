"""Run several commands, a few at once, each with a receipt of its own.

Owns what its input means, and the shape of its output. Promises: a command that has ended is not run again, whatever
becomes of the others; one that may have happened half is never run again by itself, unless the input says that it may.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from typing import Annotated, Any

import msgspec
import trio

from pwf import Context, EffectUnknown, NotApplied, Workflow, parts

TAIL_BYTES = 8 * 1024  # that are kept of what a command prints
COMMANDS_MAX = 50  # each has a bar of its own


class Command(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One of them. `name` must be its own within the batch. `again`: it may simply be run again after a crash."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=60)]
    words: Annotated[list[str], msgspec.Meta(min_length=1)]
    cwd: str | None = None
    env: dict[str, str] = {}
    ok_exit_codes: tuple[int, ...] = (0,)
    timeout_minutes: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    again: bool = False


class Batch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`parallel`: how many at once. `gate`: the run fails when one of them did."""

    commands: Annotated[list[Command], msgspec.Meta(min_length=1, max_length=COMMANDS_MAX)]
    parallel: Annotated[int, msgspec.Meta(ge=1, le=32)] = 4
    gate: bool = True


class Receipt(msgspec.Struct, kw_only=True):
    """How one ended. `exit_code` is None where it could not begin or took too long; `error` says which."""

    name: str
    ok: bool
    exit_code: int | None = None
    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""
    error: str = ""


class Ran(msgspec.Struct, kw_only=True):
    """All receipts, in the order of the input; and the names of those that failed."""

    receipts: list[Receipt]
    failed: list[str]


flow = Workflow("command-batch", input=Batch, title=lambda ctx: f"{len(ctx.input.commands)} commands")


@flow.action(effect=parts("command"), timeout=None)
async def work(ctx: Context[Batch]) -> list[Receipt]:
    """Every command, each an effect by its name."""
    commands = ctx.input.commands
    if len({command.name for command in commands}) < len(commands):
        raise ValueError("two commands have the same name: give each one of its own")
    receipts: dict[str, Receipt] = {}
    unknown: list[EffectUnknown] = []
    slots = trio.CapacityLimiter(ctx.input.parallel)
    ctx.progress(0, len(commands), "commands", label="done")

    async def one(command: Command) -> None:
        async with slots:
            ctx.progress(key=command.name, label=command.name, status="running")
            try:
                receipt = await made(ctx, command)
            except EffectUnknown as error:  # the others go on: it is for a person
                unknown.append(error)
                ctx.progress(key=command.name, label=command.name, status="nobody knows")
                return
        receipts[command.name] = receipt
        status = "done" if receipt.ok else receipt.error or f"exit code {receipt.exit_code}"
        ctx.progress(key=command.name, label=command.name, status=status[:200])
        ctx.progress(len(receipts), len(commands), "commands", label="done")

    async with trio.open_nursery() as nursery:
        for command in commands:
            nursery.start_soon(one, command)
    if unknown:
        raise unknown[0]
    return [receipts[command.name] for command in commands]


async def made(ctx: Context[Batch], command: Command) -> Receipt:
    """The receipt of one command, which is run unless it has been."""
    request = msgspec.to_builtins(command)
    mode: Any = "idempotent" if command.again else "manual"
    try:
        receipt = await ctx.effect(command.name, request, apply=partial(run, command), mode=mode)
    except NotApplied as error:
        return Receipt(name=command.name, ok=False, error=str(error))
    return msgspec.convert(receipt, Receipt)


async def run(command: Command, request: Any, effect_key: str) -> dict[str, Any]:
    """Run it to its end, within its time. Raises `NotApplied` where it could not begin."""
    began = time.monotonic()
    environment = {**os.environ, **command.env, "PWF_EFFECT_KEY": effect_key}
    try:
        process = await trio.lowlevel.open_process(
            command.words,
            cwd=command.cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except (OSError, ValueError) as error:
        raise NotApplied(f"{command.words[0]} could not be run: {error}") from error
    ends = {"stdout": b"", "stderr": b""}
    try:
        with trio.move_on_after(60 * command.timeout_minutes) as time_limit:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(keep_end, process.stdout, ends, "stdout")
                nursery.start_soon(keep_end, process.stderr, ends, "stderr")
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
    late = time_limit.cancelled_caught
    receipt = Receipt(
        name=command.name,
        ok=not late and process.returncode in command.ok_exit_codes,
        exit_code=None if late else process.returncode,
        seconds=round(time.monotonic() - began, 3),
        stdout=ends["stdout"].decode("utf-8", "replace"),
        stderr=ends["stderr"].decode("utf-8", "replace"),
        error=f"it took longer than {command.timeout_minutes:g} minutes, and was killed" if late else "",
    )
    found: dict[str, Any] = msgspec.to_builtins(receipt)
    return found


async def keep_end(stream: Any, ends: dict[str, bytes], name: str) -> None:
    """Read a stream to its end, and keep the last of it."""
    async for data in stream:
        ends[name] = (ends[name] + bytes(data))[-TAIL_BYTES:]


@flow.compute
def report(ctx: Context[Batch]) -> Ran:
    """What came of all; with `gate` a failure is the run's."""
    failed = [receipt for receipt in ctx[work] if not receipt.ok]
    if failed and ctx.input.gate:
        told = "; ".join(f"{one.name}: {one.error or f'exit code {one.exit_code}'}" for one in failed)
        raise RuntimeError(f"{len(failed)} of {len(ctx[work])} commands failed: {told}")
    return Ran(receipts=ctx[work], failed=[one.name for one in failed])


flow.graph(work >> report)
