"""What a reconciling process asks while it works: larger values, secrets, child runs, effects.

Owns nothing: it is one task of a reconcile, over the process's values socket. Promises: an answer is on disk before it
leaves, and only the owner of the lease gets one that changes anything.
"""

from __future__ import annotations

import trio

from pwf.actors.code.definitions import DefinitionsHandle
from pwf.actors.code.schemas import Schemas
from pwf.actors.runs.launching import Launchable, Supervision
from pwf.actors.runs.runner_calls import SecretReads, answer_secret, send_value, serve_lines
from pwf.actors.runs.settings_changes import SettingsChanges, Wanted
from pwf.errors import PwfError
from pwf.protocol.origin import Origin
from pwf.protocol.reconcile import (
    CancelRun,
    ChangeChild,
    ChildAnswer,
    ChildWord,
    EnsureRun,
    QueueForChild,
    RemoveForChild,
    decode_question,
)
from pwf.protocol.runner import (
    RUNNER_FRAME_BYTES_MAX,
    BeginPart,
    ReadSecret,
    ReadValue,
    SettlePart,
    encode_line,
)
from pwf.protocol.settings import SettingsChanged
from pwf.store import child_words
from pwf.store.children import (
    CancelChild,
    EnsureChild,
    FindChild,
    cancel_child,
    ensure_child,
    find_child,
)
from pwf.store.once import Done, FirstDone, first_done
from pwf.store.read_resources import OfResource, resource_refers
from pwf.store.resource_effects import ReconcilePart, reconcile_part
from pwf.store.runners import Fence
from pwf.store.runs import StartRun
from pwf.store.settings import ChangeSettings
from pwf.values import canonical_texts, digest, parse, parse_canonical


class Questions:
    """For all reconciles: what is needed to answer them."""

    def __init__(self, definitions: DefinitionsHandle, schemas: Schemas, settings: SettingsChanges) -> None:
        self._definitions = definitions
        self._schemas = schemas
        self._settings = settings

    async def serve(
        self,
        stream: trio.abc.Stream,
        fence: Fence,
        world: Supervision,
        known: Launchable,
        *,
        deleting: bool,
        secrets: SecretReads,
    ) -> None:
        """Answer until the process's end closes, or says something that is no question (`serve_lines`).

        `deleting`: whether it was told that the resource is to go.
        """

        async def answer(line: bytes) -> None:
            question = decode_question(line)
            if isinstance(question, ReadSecret):
                await stream.send_all(encode_line([await answer_secret(question.name, secrets)]))
            else:
                await self._answer(stream, fence, world, known, question, deleting)

        await serve_lines(stream, RUNNER_FRAME_BYTES_MAX, answer)

    async def _answer(
        self,
        stream: trio.abc.Stream,
        fence: Fence,
        world: Supervision,
        known: Launchable,
        question: ReadValue | EnsureRun | CancelRun | ChildWord | BeginPart | SettlePart,
        deleting: bool,
    ) -> None:
        match question:
            case ReadValue():
                wanted = OfResource(resource_no=fence.entity_no, digest=question.digest)
                may_read = await world.store.read(resource_refers, wanted)
                await send_value(stream, world.store, question.digest if may_read else None)
            case EnsureRun():
                child = await self._ensure(fence, world, known, question, deleting)
                await stream.send_all(encode_line([child]))
            case CancelRun():
                await stream.send_all(encode_line([await self._cancel(fence, world, question)]))
            case ChangeChild() | QueueForChild() | RemoveForChild():
                await stream.send_all(encode_line([await self._said(fence, world, question)]))
            case BeginPart() | SettlePart():
                part = ReconcilePart(fence=fence, call=question)
                answer = await world.write(fence.run_id, reconcile_part, part, along=False)
                await stream.send_all(encode_line([answer]))

    async def _ensure(
        self, fence: Fence, world: Supervision, known: Launchable, question: EnsureRun, deleting: bool
    ) -> ChildAnswer:
        """The child under a key: found, or started with the code that its file has now."""
        key, wish = question.request_key, canonical_texts([question.workflow], what="workflow")
        fingerprint = digest(wish + bytes(question.input))
        try:
            find = FindChild(fence=fence, key=key, fingerprint=fingerprint)
            child = await world.write(fence.run_id, find_child, find, along=False)
            if child is not None:
                return ChildAnswer(child=child)
            start = await self._start(world, known, question)
            ensure = EnsureChild(
                fence=fence, key=key, fingerprint=fingerprint, start=start, deleting=deleting
            )
            child = await world.write(fence.run_id, ensure_child, ensure, along=False)
        except PwfError as error:
            return ChildAnswer(code=error.code, message=error.message, hint=error.hint)
        return ChildAnswer(child=child)

    async def _start(self, world: Supervision, known: Launchable, question: EnsureRun) -> StartRun:
        environment = known.environment
        origin = Origin(
            cwd=environment.root, python=environment.interpreter, environment=environment.variables
        )
        found = await self._definitions.find(question.workflow, origin)
        value = parse_canonical(
            bytes(question.input),
            limit=world.config.max_value_bytes,
            what=f"input of child {question.request_key!r}",
        )
        schema = found.definition.graph.input_schema
        return StartRun(
            code=found.code,
            environment=found.environment,
            input=self._schemas.check_input(question.workflow, schema, value),
            agent=await world.agents.of(found.definition.graph, None),
            actor="manager",
            state_bytes_max=world.config.max_state_size,
        )

    async def _cancel(self, fence: Fence, world: Supervision, question: CancelRun) -> ChildAnswer:
        command = CancelChild(fence=fence, key=question.request_key)
        try:
            with trio.CancelScope(shield=True):  # what is committed is told, whatever ends the reconcile
                done = await world.write(fence.run_id, cancel_child, command, along=False)
                if done.stop is not None:
                    await world.stop_run(done.stop.run_id, done.stop.revision)
        except PwfError as error:
            return ChildAnswer(code=error.code, message=error.message, hint=error.hint)
        return ChildAnswer(child=done.child)

    async def _said(self, fence: Fence, world: Supervision, word: ChildWord) -> ChildAnswer:
        """Something that is said to a child."""
        try:
            match word:
                case ChangeChild():
                    return ChildAnswer(change=await self._change(fence, world, word))
                case QueueForChild():
                    queue = child_words.QueueForChild(
                        fence=fence, child=word.request_key, key=word.key, text=word.text
                    )
                    done = await world.write(fence.run_id, child_words.queue_for_child, queue, along=False)
                case RemoveForChild():
                    remove = child_words.RemoveForChild(
                        fence=fence, child=word.request_key, follow_up=word.follow_up
                    )
                    done = await world.write(fence.run_id, child_words.remove_for_child, remove, along=False)
        except PwfError as error:
            return ChildAnswer(code=error.code, message=error.message, hint=error.hint)
        return ChildAnswer(follow_up=done.follow_up_id)

    async def _change(self, fence: Fence, world: Supervision, word: ChangeChild) -> int:
        """The number of the change, of the first one for a repeat."""
        find = FindChild(fence=fence, key=word.request_key)
        run_id = await world.write(fence.run_id, child_words.run_of_child, find, along=False)
        facts = [parse(bytes(word.patch), what="the patch"), word.scope]
        receipt = child_words.child_receipt(fence, run_id, "settings.change", word.key, facts)
        before = await world.store.read(first_done, FirstDone(receipt, SettingsChanged))
        if before is not None:  # they may be others by now, which the patch does not fit
            return int(before.unwrap().change)

        async def commit(change: ChangeSettings) -> Done[SettingsChanged] | None:
            command = child_words.ChangeChild(fence=fence, change=change)
            return await world.write(fence.run_id, child_words.change_child, command, along=False)

        wanted = Wanted(
            run_id=run_id,
            patch=bytes(word.patch),
            scope=word.scope,
            kind="manager",
            who=child_words.actor_of(fence),
            receipt=receipt,
        )
        return (await self._settings.make(world, wanted, commit)).unwrap().change
