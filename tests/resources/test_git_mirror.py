"""examples/resources/git-mirror.py with real git: in step, verified, repaired, whatever is done behind its back."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pwf.values import canonical
from tests.resources.kept import Kept

pytestmark = pytest.mark.rest  # real processes, many of them


def git(at: Path, *words: str) -> str:
    identity = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    done = subprocess.run(
        ["git", "-C", str(at), *identity, *words], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class Upstream:
    """A repository that somebody works in."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch=main")
        self.commit("first")

    def commit(self, text: str) -> str:
        (self.folder / "file").write_text(text)
        git(self.folder, "add", "file")
        git(self.folder, "commit", "--quiet", "-m", text)
        return self.head

    @property
    def head(self) -> str:
        return git(self.folder, "rev-parse", "HEAD")

    def refs(self) -> dict[str, str]:
        return refs(self.folder)


def refs(at: Path) -> dict[str, str]:
    lines = git(
        at, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags"
    ).splitlines()
    return dict(line.split(" ") for line in lines)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    return tmp_path / "backup" / "website.git"


@pytest.fixture
def kept(upstream: Upstream, mirror: Path) -> Kept:
    return Kept("git-mirror", {"upstream": str(upstream.folder), "mirror": str(mirror)})


def assert_in_step(kept: Kept, upstream: Upstream, mirror: Path) -> None:
    assert refs(mirror) == upstream.refs()
    assert git(mirror, "rev-parse", "HEAD") == upstream.head
    git(mirror, "fsck", "--full", "--no-dangling")
    assert kept.ready == ("True", "InStep")
    assert kept.status["head"] == upstream.head


def test_a_mirror_is_made_and_follows_what_is_pushed(kept: Kept, upstream: Upstream, mirror: Path) -> None:
    kept.settle()
    assert_in_step(kept, upstream, mirror)

    upstream.commit("second")
    git(upstream.folder, "branch", "side")
    git(upstream.folder, "tag", "v1")
    kept.settle()

    assert_in_step(kept, upstream, mirror)
    assert (kept.status["branches"], kept.status["made"]) == (2, 1)


def test_what_is_in_step_is_left_as_it_is(kept: Kept, upstream: Upstream, mirror: Path) -> None:
    kept.settle()
    before = kept.status

    said = kept.settle()

    assert (bytes(said.status), said.events, kept.status) == (b"{}", (), before)


def test_what_upstream_drops_or_rewrites_is_kept_for_its_time(
    kept: Kept, upstream: Upstream, mirror: Path
) -> None:
    lost = upstream.commit("to be rewritten")
    git(upstream.folder, "branch", "side")
    kept.settle()
    git(upstream.folder, "branch", "-D", "side")
    git(upstream.folder, "commit", "--quiet", "--amend", "-m", "rewritten")
    kept.settle()
    assert_in_step(kept, upstream, mirror)
    names = git(mirror, "for-each-ref", "--format=%(refname) %(objectname)", "refs/kept").splitlines()
    assert {line.split("/", 3)[3] for line in names} == {f"heads/main {lost}", f"heads/side {lost}"}
    assert kept.status["kept"] == 2

    kept.change(keep_days=-1.0)  # as if their time were over
    kept.settle()

    assert kept.status["kept"] == 0
    assert git(mirror, "for-each-ref", "refs/kept") == ""
    assert_in_step(kept, upstream, mirror)


def break_ref(mirror: Path) -> None:
    git(mirror, "update-ref", "refs/heads/main", git(mirror, "rev-list", "--max-parents=0", "HEAD"))


def lose_branch(mirror: Path) -> None:
    git(mirror, "update-ref", "-d", "refs/heads/main")


def add_branch(mirror: Path) -> None:
    git(mirror, "update-ref", "refs/heads/foreign", "HEAD")


def lose_objects(mirror: Path) -> None:
    shutil.rmtree(mirror / "objects")


def lose_head(mirror: Path) -> None:
    (mirror / "HEAD").unlink()


def lose_all(mirror: Path) -> None:
    shutil.rmtree(mirror)


def write_nonsense(mirror: Path) -> None:
    (mirror / "packed-refs").write_text("nonsense\n")
    (mirror / "refs" / "heads" / "main").write_text("nonsense\n")


def a_file_in_its_place(mirror: Path) -> None:
    shutil.rmtree(mirror)
    mirror.write_text("not a repository")


@pytest.mark.parametrize(
    "harm",
    [
        break_ref,
        lose_branch,
        add_branch,
        lose_objects,
        lose_head,
        lose_all,
        write_nonsense,
        a_file_in_its_place,
    ],
    ids=lambda harm: harm.__name__,
)
def test_damage_behind_its_back_is_repaired(
    kept: Kept, upstream: Upstream, mirror: Path, harm: Callable[[Path], None]
) -> None:
    upstream.commit("second")
    kept.settle()
    harm(mirror)

    kept.settle()

    assert_in_step(kept, upstream, mirror)


def test_a_damaged_object_is_found_when_the_mirror_is_verified(
    kept: Kept, upstream: Upstream, mirror: Path
) -> None:
    kept.settle()
    for path in (mirror / "objects").rglob("*"):
        if path.is_file() and path.suffix in ("", ".pack"):
            path.chmod(0o600)
            path.write_bytes(path.read_bytes()[:-30] + b"x" * 30)

    kept.change(verify_hours=-1.0)
    kept.settle()

    assert_in_step(kept, upstream, mirror)
    assert "Damaged" in kept.events


def test_the_spec_may_change_while_it_is_reconciled(
    kept: Kept, upstream: Upstream, mirror: Path, tmp_path: Path
) -> None:
    """What was done for the old spec is dropped with its result; the next reconcile goes from what it finds."""
    other = Upstream(tmp_path / "other")
    other.commit("of another project")
    kept.settle()
    kept._reconcile()  # of the older generation: nothing of it is kept
    kept.change(upstream=str(other.folder))

    kept.settle()

    assert_in_step(kept, other, mirror)


def test_an_upstream_that_is_gone_is_told_and_nothing_is_lost(
    kept: Kept, upstream: Upstream, mirror: Path
) -> None:
    kept.settle()
    before = refs(mirror)
    upstream.folder.rename(upstream.folder.with_name("moved"))

    said = kept.reconcile()

    assert (said.outcome, kept.ready) == ("requeue", ("False", "Unreachable"))
    assert refs(mirror) == before


def test_a_folder_that_it_has_not_made_is_never_touched(kept: Kept, mirror: Path) -> None:
    mirror.mkdir(parents=True)
    (mirror / "mine").write_text("precious")

    kept.settle()
    kept.deleting = True
    kept.settle()

    assert (mirror / "mine").read_text() == "precious"
    assert kept.conditions["Ready"].reason == "NotOurs"


def test_the_mirror_of_another_resource_is_not_taken(kept: Kept, mirror: Path) -> None:
    kept.settle()
    second = Kept("git-mirror", kept.spec, uid="u2")

    second.settle()

    assert second.ready == ("False", "NotOurs")
    second.deleting = True
    second.settle()
    assert mirror.exists()


def test_deleting_removes_the_mirror_before_its_finalizer_goes(kept: Kept, mirror: Path) -> None:
    kept.settle()
    assert kept.finalizers == ("mirror",)

    kept.deleting = True
    kept.settle()

    assert kept.finalizers == ()
    assert list(mirror.parent.iterdir()) == []


def test_a_mirror_that_is_to_stay_stays(kept: Kept, upstream: Upstream, mirror: Path) -> None:
    kept.change(keep_mirror=True)
    kept.settle()

    kept.deleting = True
    kept.settle()

    assert (refs(mirror), kept.finalizers) == (upstream.refs(), ())


def killed_at_every_point(kept: Kept, upstream: Upstream, mirror: Path, step: int) -> None:
    """Each kill is in the state that the kill before has left, and in the end all is as it should be."""
    for number in range(0, 200, step):
        if not kept.killed_before(number):
            break
        kept.settle()
        assert_in_step(kept, upstream, mirror)
        shutil.rmtree(mirror)
        upstream.commit(f"commit {number}")
    else:
        raise AssertionError("it never came to its end")
    kept.settle()
    assert_in_step(kept, upstream, mirror)


def test_a_kill_at_some_points_leaves_nothing_that_is_not_repaired(
    kept: Kept, upstream: Upstream, mirror: Path
) -> None:
    kept.finalizers = ("mirror",)
    killed_at_every_point(kept, upstream, mirror, step=4)


@pytest.mark.rest
def test_a_kill_at_any_point_leaves_nothing_that_is_not_repaired(
    kept: Kept, upstream: Upstream, mirror: Path
) -> None:
    kept.finalizers = ("mirror",)
    killed_at_every_point(kept, upstream, mirror, step=1)


@pytest.mark.parametrize("number", range(6))
def test_a_kill_while_it_is_deleted_is_made_up_for(kept: Kept, mirror: Path, number: int) -> None:
    kept.settle()
    kept.deleting = True

    kept.killed_before(number)
    kept.settle()

    assert (kept.finalizers, list(mirror.parent.iterdir())) == ((), [])


def test_it_watches_where_a_push_and_a_hand_in_the_mirror_show(
    kept: Kept, upstream: Upstream, mirror: Path
) -> None:
    spec = kept.manager.read_spec(canonical(kept.spec))

    paths = kept.manager.watched(spec)

    assert f"{upstream.folder}/.git/refs" in paths
    assert f"{mirror}/refs" in paths
