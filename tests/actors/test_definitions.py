"""What a workflow's name means: resolved once, again only when a file changed, shared by those who ask at once."""

# ruff: noqa: ASYNC240 - a test may block its own loop

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

import pwf
from pwf.actors.code.definitions import Definitions
from pwf.actors.code.newer_code import NewerCode
from pwf.actors.code.schemas import FAULTS_SHOWN_MAX, Schemas
from pwf.actors.code.whereabouts import Whereabouts
from pwf.errors import GraphError, InvalidAnswer, InvalidInput, LoadFailed, NotFound, PwfError, Unavailable
from pwf.protocol.graph import ManagerSpec, NodeSpec, SourceFile, WorkflowDefinition, WorkflowGraph
from pwf.protocol.origin import Origin
from pwf.protocol.spawn import Resolved
from pwf.store.runs import RunEnvironment
from pwf.values import digest
from pwf.watch import mark_of


class Resolver:
    """Answers with the file's text as the definition's identity; counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.error: Resolved | PwfError | None = None
        self.takes_s = 1.0
        self.manager: ManagerSpec | None = None

    async def resolve(self, interpreter: str, path: str, root: str, environment: dict[str, str]) -> Resolved:
        self.asked.append(path)
        text = Path(path).read_bytes()
        watch = {path: mark_of(path), path + ".absent": None}
        error = self.error
        await trio.sleep(self.takes_s)
        if isinstance(error, PwfError):
            raise error
        if error is not None:
            return error
        graph = WorkflowGraph(
            name="w", start="a", nodes=(NodeSpec(id="a", kind="compute"),), manager=self.manager
        )
        source = SourceFile(path=path, digest=digest(text), size=len(text), kind="root")
        definition = WorkflowDefinition(
            definition_id=digest(text), graph=graph, root=root, sources=(source,), warnings=()
        )
        return Resolved(
            call=0, python="3.99.1", definition=definition, texts={digest(text): text}, watch=watch
        )


class World:
    def __init__(self, folder: Path) -> None:
        self.workflows = folder / ".pwf" / "workflows"
        self.workflows.mkdir(parents=True)
        self.file = self.workflows / "w.py"
        self.file.write_text("# Workflow one")
        self.resolver = Resolver()
        self.actor = Definitions(self.resolver, Whereabouts(folder / "config" / "config.toml", None))
        self.definitions = self.actor.handle
        self.origin = Origin(cwd=str(folder), python=sys.executable)


@pytest.fixture
async def at(tmp_path: Path, nursery: trio.Nursery) -> World:
    world = World(tmp_path)
    nursery.start_soon(world.actor.run)
    return world


@pytest.mark.trio
async def test_a_file_is_resolved_once_while_it_stays_as_it_is(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    first = await at.definitions.find("w", at.origin)
    second = await at.definitions.find(".pwf/workflows/w.py", at.origin)
    assert first.definition == second.definition
    assert len(at.resolver.asked) == 1


@pytest.mark.trio
async def test_those_who_ask_at_once_share_one_resolver(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(at.definitions.find, "w", at.origin)
    assert len(at.resolver.asked) == 1


@pytest.mark.trio
async def test_an_edit_or_a_file_that_appears_asks_again(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    first = await at.definitions.find("w", at.origin)
    at.file.write_text("# Workflow two")
    second = await at.definitions.find("w", at.origin)
    assert first.definition.definition_id != second.definition.definition_id
    at.file.with_name("w.py.absent").touch()
    await at.definitions.find("w", at.origin)
    assert len(at.resolver.asked) == 3


@pytest.mark.trio
async def test_another_environment_is_another_answer(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    await at.definitions.find("w", at.origin)
    await at.definitions.find("w", Origin(cwd=at.origin.cwd, python=sys.executable, environment={"A": "1"}))
    assert len(at.resolver.asked) == 2


@pytest.mark.trio
async def test_one_answer_has_all_that_a_start_needs(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    known = (await at.definitions.look("w", at.origin)).get()
    assert known.code.texts == {digest(b"# Workflow one"): b"# Workflow one"}
    assert known.code.path == str(at.file)
    assert known.environment == RunEnvironment(
        root=at.origin.cwd, interpreter=sys.executable, python="3.99.1", pwf=pwf.__version__
    )


@pytest.mark.trio
async def test_a_look_says_which_project_was_meant_whatever_is_wrong(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    at.resolver.error = Resolved(call=0, error_code="load_failed", error="mistake")
    root = Path(at.origin.cwd)
    for workflow, kind in (("w", LoadFailed), ("nowhere", NotFound)):
        looked = await at.definitions.look(workflow, at.origin)
        assert (looked.root, type(looked.error)) == (root, kind)


@pytest.mark.trio
async def test_another_interpreter_at_the_same_path_is_asked_again(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    python = Path(at.origin.cwd, "python")
    python.symlink_to(sys.executable)
    origin = Origin(cwd=at.origin.cwd, python=str(python))
    await at.definitions.find("w", origin)
    await at.definitions.find("w", origin)
    assert len(at.resolver.asked) == 1
    python.unlink()
    python.symlink_to("/bin/sh")
    await at.definitions.find("w", origin)
    assert len(at.resolver.asked) == 2


@pytest.mark.trio
async def test_the_texts_that_are_kept_are_bounded_and_the_last_stays(
    at: World, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pwf.actors.code.definitions.TEXTS_BYTES_MAX", 20)
    at.file.with_name("other.py").write_text("# more text than fits")
    for workflow in ("w", "other", "other", "w"):
        await at.definitions.find(workflow, at.origin)
    assert [Path(path).stem for path in at.resolver.asked] == ["w", "other", "w"]


@pytest.mark.trio
@pytest.mark.parametrize(("code", "kind"), [("load_failed", LoadFailed), ("graph_error", GraphError)])
async def test_what_is_wrong_with_the_file_is_the_error_and_is_not_kept(
    at: World, autojump_clock: trio.testing.MockClock, code: str, kind: type[PwfError]
) -> None:
    at.resolver.error = Resolved(call=0, error_code=code, error="mistake in line 3", hint="mend it")
    with pytest.raises(kind, match="mistake") as caught:
        await at.definitions.find("w", at.origin)
    assert caught.value.hint == "mend it"
    at.resolver.error = None
    await at.definitions.find("w", at.origin)


@pytest.mark.trio
async def test_a_caller_who_is_cancelled_leaves_the_others_an_answer(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(0.5):
            nursery.start_soon(at.definitions.find, "w", at.origin)
            await at.definitions.find("w", at.origin)
    assert (await at.definitions.find("w", at.origin)).definition.graph.name == "w"


@pytest.mark.trio
async def test_a_caller_who_is_gone_before_its_question_is_taken_holds_up_no_other(
    tmp_path: Path, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    world = World(tmp_path)
    with trio.CancelScope() as gone:
        gone.cancel()
        await world.definitions.find("w", world.origin)
    nursery.start_soon(world.definitions.find, "w", world.origin)
    await trio.testing.wait_all_tasks_blocked()
    nursery.start_soon(world.actor.run)
    with trio.fail_after(10):
        assert (await world.definitions.find("w", world.origin)).definition.graph.name == "w"


@pytest.mark.trio
async def test_who_joined_a_failing_resolver_is_answered_by_the_file_as_it_is_then(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    at.resolver.error = Resolved(call=0, error_code="load_failed", error="mistake")
    found: list[str] = []

    async def first() -> None:
        with pytest.raises(LoadFailed):
            await at.definitions.find("w", at.origin)

    async def second() -> None:
        await trio.sleep(0.5)
        at.resolver.error = None
        at.file.write_text("# Workflow mended")
        found.append((await at.definitions.find("w", at.origin)).definition.definition_id)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(first)
        nursery.start_soon(second)
    assert found == [digest(b"# Workflow mended")]


@pytest.mark.trio
async def test_who_waits_for_a_resolver_when_the_actor_ends_is_told(tmp_path: Path) -> None:
    world = World(tmp_path)
    told: list[PwfError] = []

    async def look() -> None:
        try:
            await world.definitions.find("w", world.origin)
        except PwfError as error:
            told.append(error)

    async with trio.open_nursery() as lookers, trio.open_nursery() as nursery:
        nursery.start_soon(world.actor.run)
        for _ in range(3):
            lookers.start_soon(look)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [type(error) for error in told] == [Unavailable] * 3


@pytest.mark.trio
async def test_a_name_that_nobody_has_is_not_found(at: World) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        await at.definitions.find("nowhere", at.origin)


# --- newer code -------------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_newer_code_is_a_file_with_another_text_and_is_looked_for_now_and_then(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    file = tmp_path / "w.py"
    file.write_bytes(b"one")
    source = SourceFile(path=str(file), digest=digest(b"one"), size=3, kind="root")
    reads = []

    class Reads:
        async def read(self, handler: object, query: object) -> tuple[SourceFile, ...]:
            reads.append(query)
            return (source,)

    actor = NewerCode(Reads())
    newer = actor.handle
    nursery.start_soon(actor.run)
    assert not await newer.differs("d", str(tmp_path))
    file.write_bytes(b"two")
    assert not await newer.differs("d", str(tmp_path))  # asked a moment ago
    assert len(reads) == 1
    actor._answers.clear()
    assert await newer.differs("d", str(tmp_path))
    file.unlink()
    actor._answers.clear()
    assert not await newer.differs("d", str(tmp_path))


# --- schemas ----------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"version": {"type": "string"}, "parts": {"type": "array", "items": {"type": "integer"}}},
    "required": ["version"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (b'{"version":3}', "at $.version"),
        (b'{"parts":[1,"x"],"version":"1"}', "at $.parts[1]"),
        (b"{}", '"version" is a required property (at $)'),
        (b'{"other":1,"version":"1"}', "other"),
        (b"null", "at $"),
    ],
)
def test_a_value_that_does_not_fit_is_told_where(value: bytes, where: str) -> None:
    schemas = Schemas()
    with pytest.raises(InvalidInput) as caught:
        schemas.check_input("w", SCHEMA, value)
    assert where in caught.value.message
    with pytest.raises(InvalidAnswer):
        schemas.check_answer("q", SCHEMA, value, "checkpoint")


def test_a_value_that_fits_or_has_no_schema_passes() -> None:
    Schemas().check_input("w", SCHEMA, b'{"version":"1"}')
    Schemas().check_input("w", None, b"anything")


TYPED = {
    "$ref": "#/$defs/I",
    "$defs": {
        "I": {
            "type": "object",
            "properties": {
                "version": {"type": "string"},
                "at": {"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]},
            },
            "additionalProperties": False,
        },
        "P": {
            "type": "object",
            "properties": {"city": {}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (b'{"vresion":"1"}', "there is no field 'vresion', did you mean 'version'? (at $)"),
        (b'{"zzz":"1"}', "there is no field 'zzz' (at $)"),
        (
            b'{"at":{"citty":1}}',
            "there is no field 'citty', did you mean 'city'? (at $.at); \"city\" is a required",
        ),
    ],
)
def test_a_field_that_a_type_lacks_is_refused_with_the_nearest_name(value: bytes, told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Schemas().check_input("w", TYPED, value)
    assert told in caught.value.message
    assert caught.value.hint == "pwf graph w shows its input"


def test_where_no_input_is_given_all_fields_have_their_defaults() -> None:
    assert Schemas().check_input("w", TYPED, b"null") == b"{}"
    assert Schemas().check_input("w", {"type": ["object", "null"]}, b"null") == b"null"
    with pytest.raises(InvalidInput, match='"version" is a required property'):
        Schemas().check_input("w", SCHEMA, b"null")
    with pytest.raises(InvalidInput, match='null is not of type "string"'):
        Schemas().check_input("w", {"type": "string"}, b"null")


@pytest.mark.parametrize(
    "schema", [{"type": "nonsense"}, {"$ref": "http://127.0.0.1:9/x"}, {"$ref": "file:///etc/hostname"}]
)
def test_a_schema_that_is_none_or_points_outside_is_the_workflows_fault(schema: dict[str, Any]) -> None:
    with pytest.raises(GraphError):
        Schemas().check_input("w", schema, b"1")


def test_faults_that_are_told_are_bounded() -> None:
    value = b'{"parts":[' + b'"x",' * 50 + b'"x"],"version":"1"}'
    with pytest.raises(InvalidInput) as caught:
        Schemas().check_input("w", SCHEMA, value)
    assert caught.value.message.count("at $.parts") == FAULTS_SHOWN_MAX


# --- resource managers ----------------------------------------------------------------------------------------


@pytest.mark.trio
async def test_a_workflow_is_no_manager_and_a_manager_no_workflow(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    managers = at.workflows.parent / "resources"
    managers.mkdir()
    (managers / "m.py").write_text("# ResourceManager")  # the resolver answers with a workflow all the same

    with pytest.raises(GraphError, match="is a workflow, not a resource manager"):
        await at.definitions.manager("m", at.origin)
    at.resolver.manager = ManagerSpec()
    managers.joinpath("m.py").write_text("# ResourceManager, again")
    known = await at.definitions.manager("m", at.origin)
    assert known.definition.graph.manager is not None
    with pytest.raises(GraphError, match="is a resource manager, not a workflow") as caught:
        await at.definitions.find(str(managers / "m.py"), at.origin)
    assert "pwf resource apply" in (caught.value.hint or "")


@pytest.mark.trio
async def test_what_may_be_either_is_looked_for_among_the_workflows_first(
    at: World, autojump_clock: trio.testing.MockClock
) -> None:
    managers = at.workflows.parent / "resources"
    managers.mkdir()
    for name in ("m", "w"):
        (managers / f"{name}.py").write_text("# ResourceManager")

    first, second = [await at.definitions.anything(name, at.origin) for name in ("w", "m")]

    assert (first.code.path, second.code.path) == (str(at.file), str(managers / "m.py"))
    with pytest.raises(NotFound, match="no workflow named 'x'"):
        await at.definitions.anything("x", at.origin)
