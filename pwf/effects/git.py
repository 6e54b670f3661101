"""Git: a commit, a tag and a push, each found again by what git itself keeps.

A commit and a tag bear the effect's key as a trailer. A push is looked for on the remote itself, never in the local
remote-tracking branch, which says only what was seen last.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from pwf.effects.prepared import UNTOLD, Request, ask_again, tells_exit_codes
from pwf.workflow.effects import NotApplied, Observation, applied, not_applied, unknown

TRAILER = "Pwf-Effect"


class GitFailed(Exception):
    """A git command could not be run or ended with another exit code than 0; its words say why."""

    def __init__(self, message: str, stdout: str = "") -> None:
        super().__init__(message)
        self.stdout = stdout


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
        try:
            new = self._untracked()
            if new:  # only their names: what is staged stays as it is when the commit is refused
                git(self.repository, "add", "--intent-to-add", *_FROM_STDIN, stdin=new)
        except GitFailed as error:
            raise NotApplied(str(error)) from error
        try:
            message = _with_trailer(self.message, key)
            git(self.repository, "commit", "--quiet", "--file=-", "--only", "--", *self.paths, stdin=message)
        except GitFailed as error:
            if self._found(key) is None:  # a hook after the commit may have failed
                if new:
                    with suppress(GitFailed):
                        git(self.repository, "rm", "--quiet", "--cached", "--force", *_FROM_STDIN, stdin=new)
                raise NotApplied(str(error)) from error
        return Commit(commit=self._found(key) or git(self.repository, "rev-parse", "HEAD"))

    def observe(self, key: str) -> Observation:
        """Look for the trailer in every branch, and in what branches have pointed to."""
        found = self._found(key)
        return not_applied() if found is None else applied(Commit(commit=found), ref=found)

    def _found(self, key: str) -> str | None:
        words = ("--all", "--reflog", "--no-show-signature", "--fixed-strings", f"--grep={TRAILER}: {key}")
        for known in git(self.repository, "log", *words, "--format=%x00%H%n%B").split("\0")[1:]:
            commit, _, message = known.partition("\n")
            if _bears(message, key):
                return commit
        return None

    def _untracked(self) -> str:
        words = ("--others", "--exclude-standard", "--full-name", "-z")
        names = git(self.repository, "ls-files", *words, "--", *self.paths).split("\0")
        return "\0".join(f":(top,literal){name}" for name in names if name)


_FROM_STDIN = ("--pathspec-from-file=-", "--pathspec-file-nul")


def _with_trailer(message: str, key: str) -> str:
    return f"{message.rstrip()}\n\n{TRAILER}: {key}\n"


def _bears(message: str, key: str) -> bool:
    """Whether the key is a line of its own: a hook may have written more below, so that it is no trailer now."""
    return f"{TRAILER}: {key}" in map(str.rstrip, message.splitlines())


@dataclass(frozen=True, kw_only=True)
class GitTag(Request[Tag]):
    """Make an annotated tag at `commit`. A tag that exists is never moved."""

    name: str
    message: str
    commit: str = "HEAD"
    repository: str | os.PathLike[str] = "."

    def apply(self, key: str) -> Tag:
        """Make it. `NotApplied` when git refuses, for instance because there is such a tag."""
        message = _with_trailer(self.message, key)
        try:
            git(self.repository, "tag", "--annotate", "--file=-", self.name, self.commit, stdin=message)
        except GitFailed as error:
            if not self._is_ours(key):  # git may have died after it was made
                raise NotApplied(str(error)) from error
        return self._tag()

    def observe(self, key: str) -> Observation:
        """It is ours when it bears the key. Another's tag under this name is not ours, and stays."""
        if not self._is_ours(key):
            return not_applied()
        tag = self._tag()
        return applied(tag, ref=tag.object)

    def _is_ours(self, key: str) -> bool:
        ref = f"refs/tags/{self.name}"
        return _bears(git(self.repository, "for-each-ref", "--format=%(contents)", ref), key)

    def _tag(self) -> Tag:
        ref = f"refs/tags/{self.name}"
        commit = git(self.repository, "rev-parse", f"{ref}^{{commit}}")
        return Tag(name=self.name, object=git(self.repository, "rev-parse", ref), commit=commit)


@dataclass(frozen=True, kw_only=True)
class GitPush(Request[Pushed]):
    """Push `source` (a commit, a branch or a tag) to `ref` on a remote, never by force.

    `ref` is whole: `refs/heads/main`, `refs/tags/v1`. Give a commit's id as `source` where the branch may move between
    two attempts, so that each pushes the same. `new`: this push makes the ref and nobody deletes it, so that a ref
    that is not there has not been pushed. `settle_s`: for how long after its sender has died the server may still come
    to take a push. For so long the remote is asked again.
    """

    ref: str
    source: str
    remote: str = "origin"
    repository: str | os.PathLike[str] = "."
    new: bool = False
    settle_s: float = 30.0

    def apply(self, key: str) -> Pushed:
        """Push it. `NotApplied` when git or the remote refuses; a connection that breaks leaves it unknown."""
        try:
            object = self._object()
        except GitFailed as error:
            raise NotApplied(str(error)) from error
        try:
            self._push(
                object, "--dry-run"
            )  # with the hook that git runs before: what fails here has sent nothing
        except GitFailed as error:
            return self._there_already(error)
        try:
            self._push(object, "--no-verify")
        except GitFailed as error:
            if not self._is_refused(error):
                raise
            return self._there_already(error)
        return self._pushed(object)

    def observe(self, key: str) -> Observation:
        """Ask the remote: it stands at the object or beyond it, or before it. In any other case nobody can tell."""
        return ask_again(self._look, "not_applied", self.settle_s)

    def _look(self) -> Observation:
        try:
            object = self._object()
            lines = git(self.repository, "ls-remote", self.remote, self.ref).splitlines()
            there = next((line.split("\t")[0] for line in lines if line.endswith(f"\t{self.ref}")), None)
            if there is None:
                return not_applied() if self.new else unknown()  # it may be merged and deleted by now
            if there != object:
                git(self.repository, "fetch", "--quiet", "--no-tags", self.remote, self.ref)
        except GitFailed:
            return unknown()
        if there == object or self._contains(there, object):
            return applied(self._pushed(object), ref=object)
        return not_applied() if self._contains(object, there) else unknown()

    def _push(self, object: str, word: str) -> None:
        git(self.repository, "push", "--porcelain", word, self.remote, f"{object}:{self.ref}")

    def _is_refused(self, error: GitFailed) -> bool:
        """Whether git or the remote says so of this ref: without that, the remote may still take it."""
        for line in error.stdout.splitlines():
            flag, refs, why = [*line.split("\t"), "", ""][:3]
            if flag == "!" and refs.endswith(f":{self.ref}"):
                return why.startswith(
                    ("[rejected]", "[remote rejected]")
                )  # not "[remote failure]": no answer came
        return False

    def _there_already(self, error: GitFailed) -> Pushed:
        """Refused is also what stands there already, below what others have pushed. Else it has not happened."""
        found = self._look()
        if found.verdict != "applied":
            raise NotApplied(str(error)) from error
        pushed: Pushed = found.output
        return pushed

    def _pushed(self, object: str) -> Pushed:
        return Pushed(remote=self.remote, ref=self.ref, object=object)

    def _object(self) -> str:
        return git(self.repository, "rev-parse", "--verify", "--end-of-options", self.source)

    def _contains(self, newer: str, older: str) -> bool:
        try:
            git(self.repository, "merge-base", "--is-ancestor", older, newer)
        except GitFailed:
            return False
        return True


def git(repository: str | os.PathLike[str], *words: str, stdin: str = "") -> str:
    """What a git command prints, without the newline at its end. It asks nobody for a password. Raises `GitFailed`.

    Bytes that are no UTF-8 are kept as Python keeps those of file names.
    """
    if not tells_exit_codes():
        raise GitFailed(f"git {words[0]} {UNTOLD}")
    # What git itself says it has done is on the disk only with `core.fsync`.
    command = ["git", "-C", os.fspath(repository), "-c", "core.fsync=committed", *words]
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command,
            input=stdin.encode("utf-8", "surrogateescape"),
            capture_output=True,
            env=environment,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise GitFailed(f"git {words[0]} could not be run: {error}") from error
    stdout = done.stdout.decode("utf-8", "surrogateescape").rstrip("\n")
    if done.returncode:
        said = (
            done.stderr.decode("utf-8", "replace").strip() or done.stdout.decode("utf-8", "replace").strip()
        )
        raise GitFailed(f"git {words[0]} failed ({done.returncode}): {said[-1_000:]}", stdout)
    return stdout
