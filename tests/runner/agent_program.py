"""A program that plays an agent: what it does stands in its prompt's first word, or in the word after the last `then`.

`MODE [then MODE …]`: the nth turn, by the number of times it was told that something was not accepted, does the nth.
`--acp` and `--pi` speak these protocols; without, the prompt is all of stdin, and the answer all of stdout.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, ClassVar

Say = Callable[[str], None]
CONVERSATIONS = os.environ.get("AGENT_CONVERSATIONS", "")  # a folder: a file for each, with its prompts


def main() -> None:
    if "--acp" in sys.argv:
        Acp().serve()
    elif "--pi" in sys.argv:
        Pi().serve()
    else:
        prompt = sys.stdin.read()
        act(mode_of(prompt), prompt, print)


def mode_of(first: str) -> str:
    """What to do in this turn. `first`: the prompt that has the modes."""
    modes = (
        next(line for line in first.splitlines() if line and "interrupted" not in line)
        .strip()
        .split(" then ")
    )
    turns = os.environ.get("AGENT_TURNS")
    number = 0
    if turns:
        with open(turns, "a+") as file:
            file.seek(0)
            number = len(file.read())
            file.write("x")
    return modes[min(number, len(modes) - 1)]


def act(mode: str, prompt: str, say: Say) -> None:
    if mode == "good":
        say('{"ship": true, "why": "ok"}')
    elif mode == "fenced":
        say('Here it is:\n```json\n{"ship": true, "why": "ok"}\n```\nDone.')
    elif mode == "blank":
        say("```json\n" + "\n" * 100_000 + "x```")
    elif mode == "picks":
        say('"ship"')
    elif mode == "wrong":
        say('{"ship": "perhaps"}')
    elif mode == "unsaid":
        say('{"ship": true}')
    elif mode == "garbage":
        sys.stdout.buffer.write(b"\xff\xfe not json\n[1]\n")
        sys.stdout.flush()
        say("not json")
    elif mode == "silent":
        pass
    elif mode == "progress":
        say("working ...\n" * 2_000)
    elif mode == "long":
        say('{"ship": true, "why": "' + "x" * 5_000_000 + '"}')
    elif mode == "stderr":
        sys.stderr.write("noise\n" * 200_000)
        say('{"ship": true, "why": "ok"}')
    elif mode == "fails":
        sys.stderr.write("no credit left\n")
        sys.exit(3)
    elif mode == "dies":
        os.kill(os.getpid(), 9)
    elif mode == "hangs":
        time.sleep(600)
    elif mode == "pipe":
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        say('{"ship": true, "why": "ok"}')
    elif mode == "left":  # a child keeps the pipe open, and the agent is gone
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        sys.exit(3)
    elif mode == "deaf":  # it has closed its output, and goes on
        os.close(1)
        time.sleep(600)
    elif mode == "errs":
        raise Refused("the provider is down")
    elif mode.startswith("hands "):  # `hands VALUE [VALUE …]`: by the tool; what was heard, it says
        say(" ".join(hand_in(value) for value in mode.split()[1:]))
    elif mode.startswith("types "):  # by the command; what was heard, it says
        typed = subprocess.run(
            ["sh", "-c", f"{os.environ['PWF_SUBMIT']} '{mode[6:]}'"],
            capture_output=True,
            text=True,
            check=False,
        )
        say(f"{typed.returncode} {typed.stdout} {typed.stderr}")
    elif mode.startswith("calls "):  # by the MCP server that it was told of
        say(McpTool.call([json.loads(value) for value in mode.split()[1:]]))
    elif mode == "hands-and-dies":
        hand_in('{"ship":true,"why":"ok"}')
        os.kill(os.getpid(), 9)
    elif mode == "hands-and-hangs":
        hand_in('{"ship":true,"why":"ok"}')
        time.sleep(600)
    elif mode == "echo":
        sys.stderr.write(prompt)
        say("null")


def hand_in(value: str) -> str:
    """The verdict."""
    connection = socket.socket(socket.AF_UNIX)
    address = os.environ["PWF_STEP"]
    connection.connect("\0" + address[1:] if address.startswith("@") else address)
    connection.sendall(b'{"type":"submit","value":' + value.encode() + b"}\n")
    answer = json.loads(connection.makefile().read())
    return str(answer["verdict"])


class McpTool:
    """The tools that an agent of the Agent Client Protocol is told of."""

    servers: ClassVar[list[dict[str, Any]]] = []

    @classmethod
    def call(cls, values: list[object]) -> str:
        """What `submit` says of each."""
        (server,) = cls.servers
        names = {one["name"]: one["value"] for one in server["env"]}
        with subprocess.Popen(
            [server["command"], *server["args"]],
            env={**os.environ, **names},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            info = {"name": "played", "version": "0"}
            begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}
            cls._ask(process, 1, "initialize", begin)
            cls._ask(process, None, "notifications/initialized", {})
            calls = ({"name": "submit", "arguments": {"value": value}} for value in values)
            said = [cls._ask(process, number, "tools/call", call) for number, call in enumerate(calls, 2)]
            assert process.stdin is not None
            process.stdin.close()
        return " ".join(str(one["structuredContent"]["verdict"]) for one in said)

    @staticmethod
    def _ask(process: subprocess.Popen[str], number: int | None, method: str, params: dict[str, Any]) -> Any:
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {"jsonrpc": "2.0", "method": method, "params": params}
        process.stdin.write(json.dumps(asked if number is None else {**asked, "id": number}) + "\n")
        process.stdin.flush()
        return None if number is None else json.loads(process.stdout.readline())["result"]


class Refused(Exception):
    """A turn that ends with the protocol's own error."""


class Spoken:
    """What the two protocols share: lines of JSON, and conversations that are files."""

    def __init__(self) -> None:
        self.first = ""

    def serve(self) -> None:
        for line in sys.stdin:
            self.take(json.loads(line))

    def take(self, message: dict[str, Any]) -> None:
        raise NotImplementedError

    def send(self, **message: Any) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def turn(self, prompt: str, say: Say) -> None:
        self.first = self.first or prompt
        act(mode_of(self.first), prompt, say)

    def path_of(self, name: str) -> str:
        return os.path.join(CONVERSATIONS, name)

    def open(self, name: str) -> None:
        if CONVERSATIONS:
            with open(self.path_of(name), "a"):
                pass


class Acp(Spoken):
    """The Agent Client Protocol."""

    def take(self, message: dict[str, Any]) -> None:
        params = message.get("params") or {}
        try:
            result = getattr(self, message["method"].replace("/", "_"))(params)
        except Refused as refused:
            self.send(jsonrpc="2.0", id=message["id"], error={"code": -32603, "message": str(refused)})
        else:
            self.send(jsonrpc="2.0", id=message["id"], result=result)

    def initialize(self, _: dict[str, Any]) -> dict[str, Any]:
        return {"protocolVersion": 1, "agentCapabilities": {"loadSession": bool(CONVERSATIONS)}}

    def session_new(self, params: dict[str, Any]) -> dict[str, Any]:
        McpTool.servers = params["mcpServers"]
        name = f"c{os.getpid()}"
        self.open(name)
        return {"sessionId": name}

    def may(self, session: str, kind: str, title: str) -> bool:
        """Whether the one that is asked allows it."""
        options = [
            {"optionId": one, "name": one, "kind": one}
            for one in ("allow_always", "reject_once", "allow_once")
        ]
        call = {"toolCallId": "t1", "kind": kind, "title": title}
        params = {"sessionId": session, "toolCall": call, "options": options}
        self.send(jsonrpc="2.0", id="p1", method="session/request_permission", params=params)
        chosen: str = json.loads(sys.stdin.readline())["result"]["outcome"]["optionId"]
        return chosen == "allow_once"

    def session_load(self, params: dict[str, Any]) -> dict[str, Any]:
        if not os.path.exists(self.path_of(params["sessionId"])):
            raise Refused("there is no such session")
        self.said("what was said before")
        return {}

    def session_prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        prompt = "".join(block["text"] for block in params["prompt"])
        if prompt.startswith("may"):  # `may KIND TITLE`: it asks for leave, and says what it was told
            _, kind, title = prompt.splitlines()[0].split(" ", 2)
            self.said(json.dumps({"ship": self.may(params["sessionId"], kind, title), "why": prompt}))
            return {"stopReason": "end_turn"}
        self.turn(prompt, self.said)
        usage = {"totalTokens": 120, "inputTokens": 100, "outputTokens": 20}
        return {"stopReason": "end_turn", "usage": usage}

    def said(self, text: str) -> None:
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        self.send(jsonrpc="2.0", method="session/update", params={"sessionId": "c", "update": chunk})


class Pi(Spoken):
    """The RPC mode of pi."""

    file = ""

    def take(self, message: dict[str, Any]) -> None:
        answer = {"id": message["id"], "type": "response", "command": message["type"], "success": True}
        if message["type"] == "get_state":
            if not self.file and CONVERSATIONS:
                self.open(f"p{os.getpid()}")
                self.file = self.path_of(f"p{os.getpid()}")
            answer["data"] = {"sessionFile": self.file or None}
        elif message["type"] == "switch_session":
            self.file = message["sessionPath"]
            answer["data"] = {"cancelled": False}
        self.send(**answer)
        if message["type"] == "prompt":
            try:
                self.turn(message["message"], self.said)
            except Refused as refused:
                self.said("", stopReason="error", errorMessage=str(refused))
            self.send(type="agent_end", messages=[])

    def said(self, text: str, **more: Any) -> None:
        usage = {"input": 60, "output": 20, "cacheRead": 40, "cacheWrite": 0, "cost": {"total": 0.25}}
        said = {"role": "assistant", "content": [{"type": "text", "text": text}], "usage": usage, **more}
        self.send(type="message_update", message=said)
        self.send(type="message_end", message=said)


main()
