"""Git: a commit, a tag and a push, each found again by what git itself keeps.

A commit and a tag bear the effect's key as a trailer. A push is looked for on the remote itself, never in the local
remote-tracking branch, which says only what was seen last.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from pwf.effects.prepared import Request
from pwf.workflow.effects import NotApplied, Observation, applied, not_applied, unknown

TRAILER = "Pwf-Effect"


class GitFailed(Exception):
    """A git command ended with another exit code than 0; its words say why."""


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `GitCommit`."""

    commit: str


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `GitTag`: `object` is the tag's own id, `commit` what it points to."""

    name: str
    object: str
    commit: str


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """The output of `GitPush`: what was pushed, and where."""

    remote: str
    ref: str
    object: str


@dataclass(frozen=True, kw_only=True)
class GitCommit(Request[Commit]):
    """Commit these `paths`, and nothing else that is changed or staged, on the branch that is checked out."""

    paths: Sequence[str]
    message: str
    repository: str | os.PathLike[str] = "."

    def apply(self, key: str) -> Commit:
        """Commit them. `NotApplied` when git refuses, for instance because nothing has changed."""
        message = f"{self.message.rstrip()}\n\n{TRAILER}: {key}\n"
        try:
            git(self.repository, "add", "--", *self.paths)
            git(self.repository, "commit", "--quiet", "--file=-", "--only", "--", *self.paths, stdin=message)
        except GitFailed as error:
            if self._found(key) is None:  # a hook after the commit may have failed
                raise NotApplied(str(error)) from error
        return Commit(commit=self._found(key) or git(self.repository, "rev-parse", "HEAD"))

    def observe(self, key: str) -> Observation:
        """Look for the trailer in every branch, and in what branches have pointed to."""
        found = self._found(key)
        return not_applied() if found is None else applied(Commit(commit=found), ref=found)

    def _found(self, key: str) -> str | None:
        wanted = f"--grep={TRAILER}: {key}"
        known = git(
            self.repository,
            "log",
            "--all",
            "--reflog",
            "--fixed-strings",
            wanted,
            f"--format=%H %({_VALUES})",
        )
        for line in known.splitlines():
            commit, _, value = line.partition(" ")
            if value == key:  # not a longer key that begins in the same way
                return commit
        return None


_VALUES = f"trailers:key={TRAILER},valueonly,separator=%x20"


@dataclass(frozen=True, kw_only=True)
class GitTag(Request[Tag]):
    """Make an annotated tag at `commit`. A tag that exists is never moved."""

    name: str
    message: str
    commit: str = "HEAD"
    repository: str | os.PathLike[str] = "."

    def apply(self, key: str) -> Tag:
        """Make it. `NotApplied` when git refuses, for instance because there is such a tag."""
        message = f"{self.message.rstrip()}\n\n{TRAILER}: {key}\n"
        try:
            git(self.repository, "tag", "--annotate", "--file=-", self.name, self.commit, stdin=message)
        except GitFailed as error:
            raise NotApplied(str(error)) from error
        return self._tag()

    def observe(self, key: str) -> Observation:
        """It is ours when it bears the key. Another's tag under this name is not ours, and stays."""
        ref = f"refs/tags/{self.name}"
        found = git(self.repository, "for-each-ref", f"--format=%({_VALUES})", ref)
        if found.strip() != key:
            return not_applied()
        tag = self._tag()
        return applied(tag, ref=tag.object)

    def _tag(self) -> Tag:
        ref = f"refs/tags/{self.name}"
        commit = git(self.repository, "rev-parse", f"{ref}^{{commit}}")
        return Tag(name=self.name, object=git(self.repository, "rev-parse", ref), commit=commit)


@dataclass(frozen=True, kw_only=True)
class GitPush(Request[Pushed]):
    """Push `source` (a commit, a branch or a tag) to `ref` on a remote, never by force.

    `ref` is whole: `refs/heads/main`, `refs/tags/v1`. Give a commit's id as `source` where the branch may move between
    two attempts, so that each pushes the same.
    """

    ref: str
    source: str
    remote: str = "origin"
    repository: str | os.PathLike[str] = "."

    def apply(self, key: str) -> Pushed:
        """Push it. Git's refusal is `NotApplied` once the remote has been looked at."""
        object = self._object()
        try:
            git(self.repository, "push", "--porcelain", self.remote, f"{object}:{self.ref}")
        except GitFailed as error:
            if self.observe(key).verdict == "not_applied":
                raise NotApplied(str(error)) from error
            raise
        return Pushed(remote=self.remote, ref=self.ref, object=object)

    def observe(self, key: str) -> Observation:
        """Ask the remote: it stands at the object or beyond it, or before it. In any other case nobody can tell."""
        try:
            object = self._object()
            there = git(self.repository, "ls-remote", self.remote, self.ref).split("\t")[0]
            if there and there != object:
                git(self.repository, "fetch", "--quiet", "--no-tags", self.remote, self.ref)
        except GitFailed:
            return unknown()
        if there == object or (there and self._contains(there, object)):
            return applied(Pushed(remote=self.remote, ref=self.ref, object=object), ref=object)
        return not_applied() if not there or self._contains(object, there) else unknown()

    def _object(self) -> str:
        return git(self.repository, "rev-parse", "--verify", "--end-of-options", self.source)

    def _contains(self, newer: str, older: str) -> bool:
        try:
            git(self.repository, "merge-base", "--is-ancestor", older, newer)
        except GitFailed:
            return False
        return True


def git(repository: str | os.PathLike[str], *words: str, stdin: str = "") -> str:
    """What a git command prints, without the space around it. It asks nobody for a password. Raises `GitFailed`."""
    command = ["git", "-C", os.fspath(repository), *words]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-1_000:]
        raise GitFailed(f"git {words[0]} failed ({done.returncode}): {said}")
    return done.stdout.strip()
