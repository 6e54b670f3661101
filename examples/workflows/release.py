"""Releases a folder: check it, pack it, ask a person, publish the archive exactly once, confirm it.

    pwf run examples/workflows/release.py --set version=1.2.0 --set source=pwf --set output=/tmp/releases

Answer the question on the spot, or later with `pwf requests` and `pwf answer`. Kill anything at any time: packing
is safe to repeat, and publishing is never repeated blindly: `look` says whether it has happened.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tarfile
from pathlib import Path
from typing import Any, Literal

import msgspec

from pwf import (
    Context,
    NotApplied,
    Retry,
    Workflow,
    applied,
    idempotent,
    manual,
    minutes,
    not_applied,
    seconds,
)


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """What to release: a folder, relative to the project's root, and where archives go."""

    version: str
    source: str = "."
    output: str = "releases"
    settle_s: float = 1.0


class Archive(msgspec.Struct, frozen=True):
    """A packed release."""

    path: str
    sha256: str
    bytes: int


class Verdict(msgspec.Struct, frozen=True):
    """A person's answer."""

    verdict: Literal["ship", "again", "stop"]
    note: str = ""


flow = Workflow(
    "release", input=Release, title=lambda ctx: f"release {ctx.input.version} of {ctx.input.source}"
)


@flow.shell(effect=idempotent("compile"), timeout=minutes(5))
def check(ctx: Context[Release]) -> list[str]:
    """Every Python file must compile. Nothing is written."""
    program = (
        "import pathlib, sys\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).rglob('*.py')):\n"
        "    compile(path.read_bytes(), str(path), 'exec')\n"
    )
    return [sys.executable, "-c", program, ctx.input.source]


@flow.action(effect=idempotent("pack"), retry=Retry(2, backoff=seconds(5)), timeout=minutes(5))
def pack(ctx: Context[Release]) -> Archive:
    """The folder as a tar.gz. A half-written one is never seen under its name."""
    folder = Path(ctx.input.output) / "built"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{ctx.input.version}.tar.gz"
    unfinished = target.with_suffix(f".{os.getpid()}.part")
    with tarfile.open(unfinished, "w:gz") as tar:
        for path in sorted(Path(ctx.input.source).rglob("*.py")):
            tar.add(path, arcname=str(path.relative_to(ctx.input.source)))
    os.replace(unfinished, target)
    data = target.read_bytes()
    ctx.progress(label=f"packed {len(data):,} bytes")
    return Archive(str(target), hashlib.sha256(data).hexdigest(), len(data))


@flow.checkpoint(returns=Verdict)
def approve(ctx: Context[Release]) -> dict[str, Any]:
    """Holds no process while it waits for a person."""
    archive = ctx[pack]
    return {
        "question": f"Publish version {ctx.input.version}?",
        "archive": archive.path,
        "size": f"{archive.bytes:,} bytes",
        "sha256": archive.sha256,
    }


def published(ctx: Context[Release]) -> Path:
    """Where this version stands once it is published."""
    return Path(ctx.input.output) / "published" / f"{ctx.input.version}.tar.gz"


def look(ctx: Context[Release]) -> Any:
    """After a crash in the middle of `publish`: did it happen? A hard link is there at once, or not at all."""
    target = published(ctx)
    if target.exists() and target.samefile(ctx[pack].path):
        return applied(str(target), ref=target.name)
    return not_applied()


@flow.action(effect=manual("publish", observe=look), timeout=minutes(1))
def publish(ctx: Context[Release]) -> str:
    """Publishing twice would be an error, so this never runs again unless `look` says that nothing happened."""
    target = published(ctx)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(ctx[pack].path, target)
    except FileExistsError as error:
        raise NotApplied(f"version {ctx.input.version} is published already") from error
    return str(target)


@flow.wait
def settle(ctx: Context[Release]) -> Any:
    """Give the outside a moment. A durable timer: the machine may be turned off meanwhile."""
    return seconds(ctx.input.settle_s)


@flow.action(effect=idempotent("read"))
def confirm(ctx: Context[Release]) -> dict[str, Any]:
    """Read it back."""
    data = Path(ctx[publish]).read_bytes()
    intact = hashlib.sha256(data).hexdigest() == ctx[pack].sha256
    return {"version": ctx.input.version, "path": ctx[publish], "intact": intact}


@flow.compute
def refused(ctx: Context[Release]) -> dict[str, Any]:
    """Why nothing was published."""
    if "publish" in ctx.results:
        error = ctx.results[publish].error
    elif "approve" in ctx.results:
        return {"published": False, "reason": ctx[approve].note or "stopped by a person"}
    else:
        error = ctx.results[check].error
    return {"published": False, "reason": error.message if error else "unknown"}


flow.graph(
    check >> pack >> approve,
    check.on("failed", "timed_out") >> refused,
    approve.switch(on="verdict", ship=publish, again=check, stop=refused),
    publish >> settle >> confirm,
    publish.on("failed") >> refused,
)
