"""A runner in a process of its own from exec on: `python -P -m pwf.runner.spawn.fresh`, started by the zygote.

For workflows that are not safe to fork, or ask for `isolate="spawn"`. Descriptors 3, 4 and 5 are its control socket
(one `Load`, one `Loaded`), messages and values. It is already the leader of its session and a subreaper, and it
leaves as any program does, so that exit handlers and finalizers of the workflow's modules run.
"""

from __future__ import annotations

import os
import sys

from pwf.protocol.runner import MARKER_VARIABLE
from pwf.protocol.spawn import Load
from pwf.runner.base import forking
from pwf.runner.spawn.channel import SpawnSocket
from pwf.runner.spawn.reaping import kill_descendants
from pwf.runner.spawn.template import load, run

CONTROL, MESSAGES, VALUES = 3, 4, 5


def main() -> int:
    """Load, answer, run, end."""
    for descriptor in (CONTROL, MESSAGES, VALUES):
        os.set_inheritable(descriptor, False)
    forking.write_lines_at_once()
    control = SpawnSocket(CONTROL)
    received = control.receive()
    if received is None:
        return 0
    request, _ = received
    if not isinstance(request, Load):
        return forking.EXIT_CRASHED
    workflow, answer = load(request, os.environ[MARKER_VARIABLE])
    if workflow is None:
        kill_descendants()
    control.send(answer)
    control.close()
    return 0 if workflow is None else run(MESSAGES, VALUES, workflow)


if __name__ == "__main__":
    sys.exit(main())
