"""`GitCommit`, `GitTag` and `GitPush`, with real repositories."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pwf.effects.git import GitCommit, GitFailed, GitPush, GitTag, git
from pwf.workflow.effects import NotApplied
from tests.effects.killed import KEY, is_told_right_wherever_it_is_killed

OTHERS = "run1:save:11"  # begins with the key


@pytest.fixture(autouse=True)
def _nobody_elses_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    for name, value in {
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_NAME": "A",
        "GIT_AUTHOR_EMAIL": "a@example.org",
        "GIT_COMMITTER_NAME": "A",
        "GIT_COMMITTER_EMAIL": "a@example.org",
    }.items():
        monkeypatch.setenv(name, value)


def repository(folder: Path, *, bare: bool = False) -> Path:
    folder.mkdir()
    git(folder, "init", "--quiet", "--initial-branch=main", *(["--bare"] if bare else []))
    if not bare:
        (folder / "file").write_text("0")
        git(folder, "add", "file")
        git(folder, "commit", "--quiet", "--message=first")
    return folder


def count(folder: Path, *words: str) -> int:
    return int(git(folder, "rev-list", "--count", *words))


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


@pytest.fixture
def cloned(tmp_path: Path, work: Path) -> tuple[Path, Path]:
    """The working repository and its remote, which has its first commit."""
    bare = repository(tmp_path / "bare", bare=True)
    git(work, "remote", "add", "origin", str(bare))
    git(work, "push", "--quiet", "origin", "main")
    return work, bare


def commit(work: Path, text: str = "1") -> str:
    (work / "file").write_text(text)
    git(work, "commit", "--quiet", "--all", f"--message={text}")
    return git(work, "rev-parse", "HEAD")


@pytest.mark.rest
def test_wherever_a_commit_is_killed_it_is_told_right_and_is_there_once(tmp_path: Path) -> None:
    given = repository(tmp_path / "given")

    def make(number: int) -> GitCommit:
        work = shutil.copytree(given, tmp_path / str(number))
        (work / "file").write_text("1")
        return GitCommit(paths=["file"], message="change", repository=work)

    is_told_right_wherever_it_is_killed(make, lambda number: count(tmp_path / str(number), "--all") - 1)


def test_a_commit_takes_its_paths_only_and_is_found_after_the_branch_has_moved_away_from_it(
    work: Path,
) -> None:
    for name in ("file", "new", "other"):
        (work / name).write_text("1")
    git(work, "add", "other")
    request = GitCommit(paths=["file", "new"], message="change", repository=work)
    done = request.apply(KEY)
    assert git(work, "show", "--name-only", "--format=", done.commit).split() == ["file", "new"]
    assert git(work, "diff", "--cached", "--name-only") == "other"
    git(work, "reset", "--quiet", "--hard", "HEAD~1")
    assert request.observe(KEY).output == done
    assert request.observe(OTHERS).verdict == request.observe(KEY[:-1]).verdict == "not_applied"


def test_a_commit_of_nothing_has_not_happened(work: Path) -> None:
    with pytest.raises(NotApplied, match="nothing to commit"):
        GitCommit(paths=["file"], message="change", repository=work).apply(KEY)


@pytest.mark.rest
def test_wherever_a_tag_is_killed_it_is_told_right(work: Path) -> None:
    is_told_right_wherever_it_is_killed(
        lambda number: GitTag(name=f"v{number}", message="one", repository=work),
        lambda number: len(git(work, "tag", "--list", f"v{number}").split()),
    )


def test_anothers_tag_of_that_name_is_not_ours_and_stays(work: Path) -> None:
    git(work, "tag", "--annotate", "--message=another's", "v1")
    request = GitTag(name="v1", message="one", repository=work)
    assert request.observe(KEY).verdict == "not_applied"
    with pytest.raises(NotApplied, match="already exists"):
        request.apply(KEY)
    assert "another's" in git(work, "cat-file", "tag", "v1")


@pytest.mark.rest
def test_wherever_a_push_is_killed_it_is_told_right(cloned: tuple[Path, Path]) -> None:
    work, bare = cloned
    commit(work)

    def make(number: int) -> GitPush:
        return GitPush(ref=f"refs/heads/b{number}", source="main", repository=work, new=True, settle_s=0)

    def happened(number: int) -> int:
        return len(git(bare, "for-each-ref", "--format=%(refname)", f"refs/heads/b{number}").split())

    is_told_right_wherever_it_is_killed(make, happened)


def test_a_push_is_found_on_the_remote_also_when_others_have_pushed_on_top(
    cloned: tuple[Path, Path], tmp_path: Path
) -> None:
    work, bare = cloned
    request = GitPush(ref="refs/heads/main", source=commit(work), repository=work, settle_s=0)
    assert request.observe(KEY).verdict == "not_applied"
    done = request.apply(KEY)
    git(tmp_path, "clone", "--quiet", str(bare), "others")
    commit(tmp_path / "others", "2")
    git(tmp_path / "others", "push", "--quiet", "origin", "main")
    assert request.observe(KEY).output == done


def test_a_push_that_the_remote_refuses_has_not_happened_and_one_that_was_forced_away_is_unknown(
    cloned: tuple[Path, Path], tmp_path: Path
) -> None:
    work, bare = cloned
    (bare / "hooks" / "pre-receive").write_text("#!/bin/sh\necho no entry >&2\nexit 1\n")
    (bare / "hooks" / "pre-receive").chmod(0o755)
    request = GitPush(ref="refs/heads/main", source=commit(work), repository=work)
    with pytest.raises(NotApplied, match="no entry"):
        request.apply(KEY)
    (bare / "hooks" / "pre-receive").unlink()
    request.apply(KEY)
    git(tmp_path, "clone", "--quiet", str(bare), "others")
    git(tmp_path / "others", "commit", "--quiet", "--amend", "--message=over it")
    git(tmp_path / "others", "push", "--quiet", "--force", "origin", "main")
    assert request.observe(KEY).verdict == "unknown"


def test_a_remote_that_can_not_be_reached_tells_nothing(cloned: tuple[Path, Path]) -> None:
    work, bare = cloned
    request = GitPush(ref="refs/heads/main", source=commit(work), repository=work)
    bare.rename(bare.with_name("away"))
    assert request.observe(KEY).verdict == "unknown"
    with pytest.raises(NotApplied, match="not appear to be a git repository"):
        request.apply(KEY)  # nothing of it was sent


def shim(monkeypatch: pytest.MonkeyPatch, folder: Path, command: str, then: str) -> None:
    """From now on `git` is a script that runs git, and after that command something more."""
    real, script = shutil.which("git"), folder / "bin" / "git"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\n{real} "$@"; code=$?\ncase "$*" in *"{command}"*) {then};; esac\nexit $code\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")


def test_a_push_whose_connection_breaks_is_unknown_although_the_remote_stands_where_it_stood(
    cloned: tuple[Path, Path],
) -> None:
    work, bare = cloned
    (bare / "hooks" / "pre-receive").write_text("#!/bin/sh\nkill -9 $PPID\n")
    (bare / "hooks" / "pre-receive").chmod(0o755)
    request = GitPush(ref="refs/heads/main", source=commit(work), repository=work)
    with pytest.raises(GitFailed):
        request.apply(KEY)


def test_before_a_push_counts_as_not_happened_the_remote_has_time_to_take_it(
    cloned: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    work, bare = cloned
    object, first = commit(work), git(work, "rev-parse", "HEAD~1")
    monkeypatch.setattr("time.sleep", lambda seconds: git(work, "push", "-q", "origin", "main"))
    assert GitPush(ref="refs/heads/main", source=object, repository=work).observe(KEY).verdict == "applied"
    git(bare, "update-ref", "refs/heads/main", first)
    assert (
        GitPush(ref="refs/heads/main", source=object, repository=work, settle_s=0).observe(KEY).verdict
        == "not_applied"
    )


def test_a_ref_that_is_not_on_the_remote_may_have_been_merged_and_deleted(cloned: tuple[Path, Path]) -> None:
    work, bare = cloned
    request = GitPush(ref="refs/heads/topic", source=commit(work), repository=work, settle_s=0)
    request.apply(KEY)
    git(bare, "branch", "-D", "topic")
    assert request.observe(KEY).verdict == "unknown"


def test_what_the_hook_before_a_push_refuses_has_not_happened_and_the_hook_runs_once(
    cloned: tuple[Path, Path],
) -> None:
    work, _ = cloned
    hook = work / ".git" / "hooks" / "pre-push"
    hook.write_text(f'#!/bin/sh\necho ran >> "{work}/../ran"\n')
    hook.chmod(0o755)
    request = GitPush(ref="refs/heads/main", source=commit(work), repository=work)
    request.apply(KEY)
    assert (work.parent / "ran").read_text() == "ran\n"
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    with pytest.raises(NotApplied, match="not today"):
        GitPush(ref="refs/heads/main", source=commit(work, "2"), repository=work).apply(KEY)


def test_what_stands_below_what_others_have_pushed_is_pushed(cloned: tuple[Path, Path]) -> None:
    work, _ = cloned
    earlier = commit(work)
    commit(work, "2")
    git(work, "push", "--quiet", "origin", "main")
    request = GitPush(ref="refs/heads/main", source=earlier, repository=work)
    assert request.apply(KEY) == request.observe(KEY).output


def test_a_push_of_what_is_not_there_and_a_commit_outside_a_repository_have_not_happened(
    work: Path, tmp_path: Path
) -> None:
    with pytest.raises(NotApplied, match="rev-parse"):
        GitPush(ref="refs/heads/main", source="nothing", repository=work).apply(KEY)
    with pytest.raises(NotApplied, match="not a git repository"):
        GitCommit(paths=["file"], message="change", repository=tmp_path).apply(KEY)
    with pytest.raises(NotApplied, match="could not be run"):
        GitCommit(paths=["file"], message="\ud800", repository=work).apply(KEY)


def test_a_tag_that_was_made_before_git_was_killed_has_happened(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim(monkeypatch, tmp_path, " tag ", "kill -9 $$")
    request = GitTag(name="v1", message="one", repository=work)
    assert request.apply(KEY) == request.observe(KEY).output


def test_a_commit_is_found_when_a_hook_writes_below_its_trailer_and_when_others_write_bytes(
    work: Path,
) -> None:
    hook = work / ".git" / "hooks" / "commit-msg"
    hook.write_text("#!/bin/sh\nprintf '\\nReviewed \\377 by nobody.\\n' >> \"$1\"\nexit 0\n")
    hook.chmod(0o755)
    (work / "file").write_text("1")
    request = GitCommit(paths=["file"], message="change", repository=work)
    done = request.apply(KEY)
    assert request.observe(KEY).output == done
    assert request.observe(OTHERS).verdict == request.observe(KEY[:-1]).verdict == "not_applied"


def test_a_commit_that_is_refused_leaves_what_is_staged_as_it_was(work: Path) -> None:
    (work / "sub").mkdir()
    odd = os.fsdecode(b" *\xff")  # begins with a space, is a pattern, and no UTF-8
    for name in ("file", "sub/new", odd):
        (work / name).write_text("1")
    hook = work / ".git" / "hooks" / "pre-commit"
    hook.write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    hook.chmod(0o755)
    before = git(work, "status", "--porcelain", "-z")
    request = GitCommit(paths=["file", "new", f"../{odd}"], message="change", repository=work / "sub")
    refused = GitCommit(paths=["file", "sub", odd], message="change", repository=work)
    with pytest.raises(NotApplied, match="no"):
        refused.apply(KEY)
    assert git(work, "status", "--porcelain", "-z") == before
    hook.unlink()
    git(work, "checkout", "--quiet", "--", "file")
    with pytest.raises(NotApplied, match="did not match"):
        request.apply(KEY)
    GitCommit(paths=["new", f"../{odd}"], message="change", repository=work / "sub").apply(KEY)
    assert git(work, "status", "--porcelain") == ""


def test_a_commit_that_meets_the_lock_of_a_killed_git_says_which_file_it_is(work: Path) -> None:
    (work / "file").write_text("1")
    (work / ".git" / "index.lock").touch()
    with pytest.raises(NotApplied, match=r"(?s)\.git/index\.lock.*remove the file manually"):
        GitCommit(paths=["file"], message="change", repository=work).apply(KEY)


def test_a_pushed_tag_is_found_by_its_own_object(cloned: tuple[Path, Path]) -> None:
    work, bare = cloned
    tag = GitTag(name="v1", message="one", repository=work).apply(KEY)
    request = GitPush(ref="refs/tags/v1", source="v1", repository=work)
    assert request.apply(KEY).object == tag.object == git(bare, "rev-parse", "refs/tags/v1")
    assert request.observe(KEY).verdict == "applied"


def test_a_commit_and_a_tag_are_on_the_disk_before_they_count(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tuple(map(int, git(work, "version").split()[2].split(".")[:2]))
    if version < (2, 37):
        pytest.skip("this git does not tell what it syncs (from 2.37)")
    (work / "file").write_text("1")
    for name, request in (
        ("commit", GitCommit(paths=["file"], message="change", repository=work)),
        ("tag", GitTag(name="v1", message="one", repository=work)),
    ):
        monkeypatch.setenv("GIT_TRACE2_EVENT", str(tmp_path / name))
        request.apply(KEY)
        assert '"category":"fsync"' in (tmp_path / name).read_text(), f"git synced nothing of the {name}"
