"""A program that plays an agent: what it does stands in its prompt's first word, or in the word after the last `then`.

`MODE [then MODE …]`: the nth turn, by the number of times it was told that something was not accepted, does the nth.
"""

from __future__ import annotations

import os
import sys
import time


def main() -> None:
    prompt = sys.stdin.read()
    modes = prompt.splitlines()[0].split(" then ")
    turn = os.environ.get("AGENT_TURNS")
    number = 0
    if turn:
        with open(turn, "a+") as file:
            file.seek(0)
            number = len(file.read())
            file.write("x")
    mode = modes[min(number, len(modes) - 1)]
    act(mode, prompt)


def act(mode: str, prompt: str) -> None:
    if mode == "good":
        print('{"ship": true, "why": "ok"}')
    elif mode == "fenced":
        print('Here it is:\n```json\n{"ship": true, "why": "ok"}\n```\nDone.')
    elif mode == "blank":
        print("```json\n" + "\n" * 100_000 + "x```")
    elif mode == "picks":
        print('"ship"')
    elif mode == "wrong":
        print('{"ship": "perhaps"}')
    elif mode == "unsaid":
        print('{"ship": true}')
    elif mode == "garbage":
        sys.stdout.buffer.write(b"\xff\xfe not json\n")
    elif mode == "silent":
        pass
    elif mode == "progress":
        print("working ...\n" * 2_000)
    elif mode == "long":
        print('{"ship": true, "why": "' + "x" * 5_000_000 + '"}')
    elif mode == "stderr":
        sys.stderr.write("noise\n" * 200_000)
        print('{"ship": true, "why": "ok"}')
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
        print('{"ship": true, "why": "ok"}')
    elif mode == "echo":
        sys.stderr.write(prompt)
        print("null")


main()
