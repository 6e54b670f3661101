"""A small agent with a session: it does the steps of its runs with any command as its model, until it is stopped.

    python -m examples.agents.loop my-session --model 'my-model --json'
    pwf run review --session my-session

The model gets the conversation so far on stdin, and prints one JSON value: what the step asks for. The conversation is
a file with one JSON object a line. That file is all that the agent remembers: stopped at any point and started again,
it says which messages it has, and goes on.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import anyio

from pwf.client import open_session
from pwf.client.session import Step
from pwf.errors import InvalidAnswer


class Conversation:
    """What was said, line by line, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.lines: list[dict[str, Any]] = []
        if path.exists():
            self.lines = [
                json.loads(line) for line in path.read_text("utf-8").splitlines() if line.endswith("}")
            ]

    def say(self, **line: Any) -> None:
        self.lines.append(line)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    @property
    def message_ids(self) -> list[str]:
        """The messages that this conversation has."""
        return [line["message_id"] for line in self.lines if "message_id" in line]


class Agent:
    """`model`: a command that answers a conversation."""

    def __init__(self, model: list[str], conversation: Conversation) -> None:
        self._model = model
        self._conversation = conversation

    async def turn(self, step: Step) -> None:
        """One turn of the model: about a step, its submission; about the end of a run, nothing."""
        self._conversation.say(role="user", message_id=step.message.message_id, text=await step.prompt())
        if step.request is None:
            return
        try:
            value = await self._ask(step)
        except (
            OSError,
            subprocess.CalledProcessError,
            ValueError,
        ) as error:  # the session is reminded, at most twice
            self._conversation.say(role="tool", text=f"no JSON value came: {error}")
            return
        self._conversation.say(role="assistant", value=value)
        try:
            verdict = await step.submit(value)
        except InvalidAnswer as error:  # the turn ends without a submission, and the session is reminded
            self._conversation.say(role="tool", text=error.message)
            return
        self._conversation.say(role="tool", text=verdict.reason or verdict.verdict)

    async def notice(self, step: Step) -> None:
        """Something that is only shown."""
        self._conversation.say(role="note", message_id=step.message.message_id, text=await step.prompt())

    async def _ask(self, step: Step) -> Any:
        question = {"conversation": self._conversation.lines, "schema": step.schema}
        answered = await anyio.run_process(self._model, input=json.dumps(question).encode(), stderr=None)
        return json.loads(answered.stdout)


async def work(session_id: str, agent: Agent, conversation: Conversation) -> None:
    async with open_session(session_id, name="loop", branch=conversation.message_ids) as session:
        await session.serve(agent.turn, agent.notice)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("session", help="the session's id: the same whenever the agent comes back")
    parser.add_argument("--model", required=True, help="the command that answers a conversation")
    parser.add_argument("--conversation", type=Path, help="the file (SESSION.jsonl)")
    options = parser.parse_args()
    conversation = Conversation(options.conversation or Path(f"{options.session}.jsonl"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        anyio.run(work, options.session, Agent(shlex.split(options.model), conversation), conversation)
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
