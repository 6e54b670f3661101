"""Keeps a local bare mirror in step with an upstream git repository.

Copy this file to .pwf/resources/git-mirror.py, and then:

    pwf resource apply git-mirror website --set upstream=/srv/git/website.git --set mirror=/backup/website.git --wait

What upstream drops or rewrites stays in the mirror for `keep_days`, under refs/kept/TIME/. The mirror is verified every
`verify_hours`; a mirror that is damaged is set aside and made anew. Deleting the resource removes the mirror, unless
`keep_mirror` is set. It never touches a folder that it has not made itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import msgspec

from pwf import Condition, ReconcileContext, Resource, ResourceManager, minutes, seconds

FINALIZER = "mirror"
GIT_S = 50  # one git command


class Spec(msgspec.Struct, forbid_unknown_fields=True):
    upstream: str  # a path, or a URL
    mirror: str  # an absolute path
    keep_days: float = 30
    verify_hours: float = 24
    keep_mirror: bool = False


class Status(msgspec.Struct):
    head: str = ""  # the commit of upstream's default branch
    branches: int = 0
    kept: int = 0  # refs that upstream has dropped or rewritten
    verified_s: float = 0  # when, in seconds since 1970
    made: int = 0  # how often the mirror was made: 1, and once more for each repair


def watched(spec: Spec) -> list[str]:
    """Where a push to upstream, or a hand in the mirror, can be seen."""
    names = ("HEAD", "packed-refs", "refs")
    upstream = spec.upstream if os.path.isdir(spec.upstream) else ""
    if upstream and os.path.isdir(f"{upstream}/.git"):
        upstream = f"{upstream}/.git"
    places = [upstream, spec.mirror] if upstream else [spec.mirror]
    return [f"{place}/{name}" for place in places for name in names] + [f"{spec.mirror}/objects/pack"]


manager = ResourceManager("git-mirror", spec=Spec, status=Status, watch=watched, every=minutes(10))


@manager.reconcile
def reconcile(ctx: ReconcileContext, resource: Resource[Spec, Status]):
    mirror = Path(resource.spec.mirror)
    whose = owner_of(mirror)
    if resource.deleting:
        if whose == resource.uid:
            if not resource.spec.keep_mirror:
                remove(mirror)
            marker_of(mirror).unlink()
        return ctx.settled(finalizers=[])
    if not mirror.is_absolute():
        return ctx.settled(conditions=[unready("BadSpec", f"{mirror} is no absolute path")])
    if whose not in ("", resource.uid):
        return ctx.settled(conditions=[unready("NotOurs", f"{mirror} was not made by this resource")])
    if FINALIZER not in resource.finalizers:  # before anything is made that must be cleaned up
        return ctx.requeue(finalizers=[FINALIZER])
    try:
        wanted, head = upstream_refs(resource.spec.upstream)
    except GitFailed as error:
        return ctx.requeue(after=seconds(30), conditions=[unready("Unreachable", str(error))])
    return bring_in_step(ctx, resource, mirror, wanted, head)


def bring_in_step(ctx, resource, mirror, wanted, head):
    spec, status = resource.spec, resource.status
    now = time.time()
    due = now - status.verified_s > spec.verify_hours * 3600
    damage = look_for_damage(mirror, wanted, whole=due)
    made, verified_s = status.made, now if due else status.verified_s
    if damage:
        if os.path.lexists(mirror):
            ctx.event("Damaged", damage)
            remove(mirror)
        make(mirror, spec.upstream, resource.uid)
        made, verified_s = made + 1, now
        ctx.event("Made", f"the mirror was made from {spec.upstream}", number=made)
    changed = follow(mirror, spec.upstream, wanted, head, now)
    if changed:
        ctx.event("Updated", f"{len(changed)} refs followed upstream", refs=sorted(changed)[:20])
    kept = expire(mirror, now - spec.keep_days * 86_400)
    new = Status(
        head=wanted.get(head, ""),
        branches=sum(name.startswith("refs/heads/") for name in wanted),
        kept=kept,
        verified_s=verified_s,
        made=made,
    )
    return ctx.settled(
        new, conditions=[Condition("Ready", True, "InStep", f"{len(wanted)} refs as upstream has them")]
    )


def unready(reason: str, message: str) -> Condition:
    return Condition("Ready", False, reason, message[:1000])


# --- git ----------------------------------------------------------------------------------------------------------


class GitFailed(Exception):
    """A git command ended badly; its last words."""


def git(*words: str, at: Path | None = None, stdin: str | None = None) -> str:
    where = [] if at is None else [f"--git-dir={at}"]
    # What somebody's own configuration, hooks or prompts would do has no place here.
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        quiet.pop(name, None)
    command = ["git", *where, "-c", "core.fsync=all", "-c", "gc.auto=0", *words]
    done = subprocess.run(
        command, check=False, input=stdin or "", capture_output=True, text=True, timeout=GIT_S, env=quiet
    )
    if done.returncode:
        raise GitFailed((done.stderr.strip() or f"git {words[0]} ended with {done.returncode}")[-1000:])
    return done.stdout


def marker_of(mirror: Path) -> Path:
    """A file beside the mirror that says whose it is, whatever happens to the mirror itself."""
    return mirror.with_name(f".{mirror.name}.pwf")


def owner_of(mirror: Path) -> str | None:
    """The uid of the resource that the place belongs to: empty where it is free, None where somebody else uses it."""
    try:
        return marker_of(mirror).read_text()
    except FileNotFoundError:
        return None if os.path.lexists(mirror) else ""


def upstream_refs(upstream: str) -> tuple[dict[str, str], str]:
    """The branches and tags that upstream has, and the name of its default branch."""
    found: dict[str, str] = {}
    head = ""
    for line in git("ls-remote", "--symref", upstream).splitlines():
        value, name = line.split("\t")
        if value.startswith("ref: ") and name == "HEAD":
            head = value.removeprefix("ref: ")
        elif name.startswith(("refs/heads/", "refs/tags/")) and not name.endswith("^{}"):
            found[name] = value
    return found, head


def own_refs(mirror: Path, below: str = "refs/") -> dict[str, str]:
    lines = git("for-each-ref", "--format=%(refname) %(objectname)", below, at=mirror).splitlines()
    return dict(line.split(" ") for line in lines)


def look_for_damage(mirror: Path, wanted: dict[str, str], *, whole: bool) -> str:
    """What is wrong with the mirror, in words; empty where nothing is. A ref that differs is no damage."""
    if not os.path.lexists(mirror):
        return "there is no mirror"
    try:
        if git("rev-parse", "--is-bare-repository", at=mirror).strip() != "true":
            return "it is no bare repository any more"
        here = own_refs(mirror)
        same = [value for name, value in here.items() if wanted.get(name) == value]
        if same:  # what is in step must be there in truth
            git("rev-list", "--objects", "--quiet", "--stdin", at=mirror, stdin="\n".join(same))
        if whole:
            git("fsck", "--full", "--no-dangling", "--no-progress", at=mirror)
    except (GitFailed, subprocess.TimeoutExpired) as error:
        return f"git can not use it: {error}"
    return ""


def make(mirror: Path, upstream: str, uid: str) -> None:
    """Make it beside its place and put it there whole, so that a kill leaves either all of it or none."""
    mirror.parent.mkdir(parents=True, exist_ok=True)
    claim(mirror, uid)
    new = mirror.with_name(f".{mirror.name}.new")
    remove(new)
    git("init", "--quiet", "--bare", str(new))
    fetch(new, upstream)
    os.rename(new, mirror)


def claim(mirror: Path, uid: str) -> None:
    """Write whose place it is, whole or not at all."""
    half = marker_of(mirror).with_suffix(".half")
    half.write_text(uid)
    os.replace(half, marker_of(mirror))


def fetch(mirror: Path, upstream: str) -> None:
    """Have the objects, under names of their own; no ref that people see has moved yet."""
    words = ("+refs/heads/*:refs/incoming/heads/*", "+refs/tags/*:refs/incoming/tags/*")
    git("fetch", "--quiet", "--prune", "--no-tags", upstream, *words, at=mirror)


def follow(mirror: Path, upstream: str, wanted: dict[str, str], head: str, now: float) -> set[str]:
    """Make the refs those of upstream, in one transaction; what would be lost is kept. Returns the changed ones."""
    here = own_refs(mirror)
    seen = {name: value for name, value in here.items() if name.startswith(("refs/heads/", "refs/tags/"))}
    if seen != wanted:
        fetch(mirror, upstream)
        incoming = own_refs(mirror, "refs/incoming/")
        wanted = {name.replace("refs/incoming/", "refs/", 1): value for name, value in incoming.items()}
    changed = {name for name in wanted.keys() | seen.keys() if wanted.get(name) != seen.get(name)}
    lines: list[str] = []
    for name in sorted(changed):
        old, new = seen.get(name), wanted.get(name)
        if old is not None and (new is None or not is_ancestor(mirror, old, new)):
            lines.append(f"update refs/kept/{int(now)}/{name.removeprefix('refs/')} {old}")
        lines.append(f"delete {name}" if new is None else f"update {name} {new}")
    if lines:
        git("update-ref", "--stdin", at=mirror, stdin="\n".join(lines) + "\n")
    if head in wanted and git("symbolic-ref", "--quiet", "HEAD", at=mirror).strip() != head:
        git("symbolic-ref", "HEAD", head, at=mirror)
    return changed


def is_ancestor(mirror: Path, old: str, new: str) -> bool:
    try:
        git("merge-base", "--is-ancestor", old, new, at=mirror)
    except GitFailed:
        return False
    return True


def expire(mirror: Path, before: float) -> int:
    """Forget what was kept long enough. How many are still kept."""
    kept = own_refs(mirror, "refs/kept/")
    old = [name for name in kept if int(name.split("/")[2]) < before]
    if old:
        git("update-ref", "--stdin", at=mirror, stdin="".join(f"delete {name}\n" for name in old))
        git("gc", "--quiet", "--prune=now", at=mirror)
    return len(kept) - len(old)


def remove(folder: Path) -> None:
    """Remove it whole: first out of the way, so that a kill in the middle leaves no half of it in its place."""
    trash = folder.with_name(f".{folder.name.lstrip('.')}.trash")
    drop(trash)
    if os.path.lexists(folder):
        os.rename(folder, trash)
        drop(trash)


def drop(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()
