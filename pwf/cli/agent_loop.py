"""`pwf agent-loop`: a person plays the agent of a session, at a terminal, until the run has ended.

Promises: nothing is submitted but what was typed or saved in the editor; what does not fit, or is rejected, is said and
asked again. Ctrl-C and Ctrl-D lose nothing: the run waits, and the session can be taken up again by its id.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pwf.cli import exits
from pwf.cli.commands import Commands, client
from pwf.cli.out import Out, UsageError, print_error
from pwf.errors import ClaimLost, PwfError, Rejected
from pwf.present import form, text

if TYPE_CHECKING:
    from anyio import CancelScope

    from pwf.client.session import Session, Step
    from pwf.protocol.operations import StartPayload
    from pwf.protocol.sessions import SessionView
    from pwf.protocol.views import RequestView

PROMPT = "submit> "
HELP = "JSON, FIELD=VALUE, or words, as the type allows; :edit opens an editor, :show says the step again"
LINE_BYTES_MAX = 1024 * 1024


def add(commands: Commands) -> None:
    parser = commands.add(
        "agent-loop",
        agent_loop,
        "play the agent of a run, at the terminal",
        example="pwf agent-loop review                       # starts a run, and asks you for its agents' steps\n"
        "pwf agent-loop review --set version=3 --session trial\n"
        "pwf agent-loop --session trial              # goes on with the session's run, or waits for one",
        more="Each step is shown with what it takes: JSON, FIELD=VALUE, or words. `:edit` opens $VISUAL or $EDITOR,\n"
        "`:show` says the step again. What does not fit, or is rejected, is said, and you are asked again. Ctrl-C\n"
        "leaves the run waiting. The exit code says how the run has ended.",
    )
    parser.add_argument("workflow", metavar="WORKFLOW", nargs="?", help="what to start; none: join a run")
    parser.add_argument("--session", metavar="ID", help="the session that you are; else a new one")
    parser.add_argument("--input", metavar="JSON|@FILE", help="the input: JSON, or a file")
    parser.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], help="set a part of the input"
    )


def agent_loop(options: argparse.Namespace, out: Out) -> int:
    from pwf.cli.patience import is_at_terminal

    if out.as_json or not (out.is_terminal and is_at_terminal()):
        raise UsageError(
            "agent-loop is for a person at a terminal",
            hint="programs submit with pwf submit, or are agents by pwf.client.open_session",
        )
    if options.workflow is None and (options.input or options.set):
        raise UsageError("an input goes with a WORKFLOW", hint="pwf agent-loop --help")
    import anyio

    from pwf.cli.run import print_end
    from pwf.ids import Ids

    session_id = options.session or f"person-{Ids().new()}"
    with client() as daemon:  # which is started where none serves
        payload = _start(options, session_id, daemon)
        person = Person(session_id, out)
        try:
            anyio.run(person.play, payload, backend="trio")
        except (BaseExceptionGroup, KeyboardInterrupt) as caught:
            error = _one_of(caught)
            if isinstance(error, KeyboardInterrupt):
                person.come_back()
            raise error from None
        if not person.ended:
            person.come_back()
            return exits.NEEDS_PERSON
        view = daemon.show(person.run_id)
        print_end(daemon, view, out)
    return exits.of_status(view.summary.status)


def _start(options: argparse.Namespace, session_id: str, daemon: Any) -> StartPayload | None:
    if options.workflow is None:
        return None
    import msgspec

    from pwf.cli.run import typed_input
    from pwf.client.origin import origin
    from pwf.protocol.operations import StartPayload
    from pwf.values import canonical

    value = typed_input(daemon, options)
    return StartPayload(
        workflow=options.workflow,
        origin=origin(daemon.places, options.workflow),
        input=msgspec.Raw(canonical(value, what="input")),
        session=session_id,
    )


def _one_of(error: BaseException) -> BaseException:
    """What was raised, without the task groups around it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class Person:
    """In the place of a model: shows each step, and reads what is typed."""

    def __init__(self, session_id: str, out: Out) -> None:
        self.run_id = ""
        self.ended = False
        self._session_id = session_id
        self._out = out
        self._keyboard = Keyboard()
        self._said = ""  # where the run stands
        self._session: Session
        self._scope: CancelScope

    async def play(self, payload: StartPayload | None) -> None:
        """Until the run has ended, or the person leaves."""
        import anyio

        from pwf.client import open_session

        async with open_session(self._session_id, name="agent-loop") as session:
            self._session = session
            await self._begin(payload)
            async with anyio.create_task_group() as tasks:
                self._scope = tasks.cancel_scope
                tasks.start_soon(self._watch)
                await session.serve(self._turn, self._notice)

    def come_back(self) -> None:
        """The person has left."""
        again = f"pwf agent-loop --session {text.line(self._session_id)}"
        waits = f"run {text.line(self.run_id)} is kept as it is" if self.run_id else "no run was begun"
        self._out.note(f"\n{waits}; go on with:  {again}")
        if self.run_id:
            self._out.note(f"or end it with:  pwf cancel {text.line(self.run_id)}")

    async def _begin(self, payload: StartPayload | None) -> None:
        from pwf.protocol.views import ENDED

        session_id = text.line(self._session_id)
        view = await self._session.view()
        goes_on = view.run is not None and view.run.status not in ENDED
        if payload is not None:
            if view.run is not None and goes_on:
                raise Rejected(
                    f"session {session_id} has a run that goes on: {text.line(view.run.run_id)}",
                    hint=f"go on with it: pwf agent-loop --session {session_id}",
                )
            self.run_id = (await self._session.client.begin(payload)).result.run_id
        elif view.run is not None and (goes_on or view.message is not None):
            self.run_id = view.run.run_id
        if self.run_id:
            self._out.print(f"run {text.line(self.run_id)}, session {session_id}")
        else:
            self._out.print(
                f"session {session_id} has no run that goes on; begin one in another terminal with:\n"
                f"  pwf run WORKFLOW --session {session_id}"
            )

    # --- what the session is asked -------------------------------------------------------------------------------

    async def _turn(self, step: Step) -> None:
        message = step.message
        if message.end is not None:
            await self._session.end("ended")
            if self.run_id in ("", message.run_id):
                self.run_id, self.ended = message.run_id, True
                self._scope.cancel()
            return
        self.run_id = message.run_id
        if step.request is None:
            await self._notice(step)
            return
        import anyio

        try:
            await self._ask(step, step.request)
        except anyio.get_cancelled_exc_class():
            if not self._scope.cancel_called:
                self._out.print("\nthis step is over, and wants nothing any more")
            raise

    async def _notice(self, step: Step) -> None:
        """Words for the session; of what people decide, `_watch` tells."""
        from pwf.cli.ask import indent

        if step.message.text is not None:
            words = await self._session.client.read_value(step.message.run_id, step.message.text)
            self._out.print(indent(text.prompt(words)))

    async def _watch(self) -> None:
        """Say it when the run waits for something that is not done here."""
        async with self._session.client.session_view() as stream:
            async for view in stream:
                said = _elsewhere(view)
                if said and said != self._said:
                    self._out.print(said)
                self._said = said

    # --- a step --------------------------------------------------------------------------------------------------

    async def _ask(self, step: Step, asked: RequestView) -> None:
        """Until something is accepted."""
        import anyio

        await self._show(step, asked)
        draft = None
        while True:
            typed = await self._keyboard.line()
            if typed is None:
                self._scope.cancel()
                await anyio.sleep_forever()  # a turn that is left has not ended
            typed = (typed or "").strip()
            try:
                if typed == ":show":
                    await self._show(step, asked)
                elif typed == ":edit":
                    draft = await self._edited(draft or _draft(asked))
                    if await self._submit(step, _value(draft, asked, whole=True)):
                        return
                elif typed and await self._submit(step, _value(typed, asked)):
                    return
            except ClaimLost:
                raise
            except PwfError as error:
                print_error(error, as_json=False)

    async def _submit(self, step: Step, value: Any) -> bool:
        """Whether it was accepted."""
        while (done := await step.submit(value)).verdict == "validating":
            self._out.print("it is still being judged…")
        if done.verdict == "accepted":
            self._out.print(self._out.paint("✓ accepted", "green"))
            return True
        reason = text.block(done.reason or "")
        self._out.print(self._out.paint(f"✗ rejected: {reason}", "red"))
        self._out.print("correct it, and submit again")
        return False

    async def _show(self, step: Step, asked: RequestView) -> None:
        from pwf.cli.ask import indent
        from pwf.protocol.kinds import REQUESTS

        out = self._out
        words = f"▶ {text.line(asked.node)} of {text.line(asked.workflow)}"
        out.print("\n" + out.paint(words, "yellow"))
        out.print(indent(text.block(await step.prompt())))
        takes = ["a reply, as people shall read it"] if REQUESTS[asked.kind].reply else []
        for line in takes or form.form_lines(asked.schema):
            out.print(out.paint(f"    {text.line(line)}", "dim"))
        if not takes:
            out.print(out.paint(f"    for example  {text.line(form.example(asked.schema))}", "dim"))
        out.print(out.paint(f"  {HELP}", "dim"))

    async def _edited(self, draft: str) -> str:
        import anyio

        found = await anyio.to_thread.run_sync(partial(edited, draft))
        if not found.strip() or found == draft:
            raise UsageError("nothing was written, so nothing was submitted", hint=":edit, and save")
        return found


class Keyboard:
    """Lines from the terminal, read so that other tasks go on and Ctrl-C ends the waiting."""

    def __init__(self) -> None:
        self._typed = b""

    async def line(self) -> str | None:
        """The next line; None at the end of input."""
        import anyio

        sys.stdout.write(PROMPT)
        sys.stdout.flush()
        stdin = sys.stdin.fileno()
        while b"\n" not in self._typed:
            await anyio.wait_readable(stdin)
            data = os.read(stdin, 65536)
            if not data or len(self._typed) > LINE_BYTES_MAX:
                self._typed = b""
                return None
            self._typed += data
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace")


def edited(draft: str) -> str:
    """A text, as it was saved in the person's editor. Raises `UsageError` where that can't be started, or fails."""
    import subprocess
    import tempfile

    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(
        prefix="pwf-"
    ) as folder:  # an editor may put another file into its place
        path = Path(folder, "submission.json")
        path.write_text(draft, "utf-8")
        try:
            subprocess.run([*shlex.split(command), str(path)], check=True)
            return path.read_text("utf-8")
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise UsageError(
                f"the editor {command!r} did not work: {error}", hint="set EDITOR, or type it in a line"
            ) from error


def _value(typed: str, asked: RequestView, *, whole: bool = False) -> Any:
    """What was typed, as the type says. `whole`: a text of several lines, which names no file and no single fields."""
    from pwf.cli.reading import read_line, read_text
    from pwf.protocol.kinds import REQUESTS

    if REQUESTS[asked.kind].reply:
        return typed.strip()
    if whole:
        return read_text(typed.strip(), asked.schema, asked.schema or {}, "the value")
    return read_line(typed, asked.schema)


def _draft(asked: RequestView) -> str:
    """What the editor begins with: the smallest value that fits, with the fields that must be given."""
    from pwf.crashlab.samples import sample

    value = sample(asked.schema)
    return (value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)) + "\n"


def _elsewhere(view: SessionView) -> str:
    """What the run waits for that is not done here, and what to type for it; nothing where it goes on."""
    from pwf.protocol.kinds import REQUESTS

    run, request = view.run, view.request
    if run is None:
        return ""
    run_id = text.line(run.run_id)
    if run.status == "waiting" and request is not None and REQUESTS[request.kind].answered_by != "session":
        how = form.answer_lines(request)[-1][1]
        return f"{text.line(request.node)} asks a person; in another terminal, type:  {how}"
    if run.status in ("paused", "held", "ambiguous"):
        how = "resume" if run.status == "paused" else "explain"
        why = f": {text.line(run.reason)}" if run.reason else ""
        return f"the run is {run.status}{why}; in another terminal, type:  pwf {how} {run_id}"
    return ""
