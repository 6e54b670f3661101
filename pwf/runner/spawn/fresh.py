"""A runner in a process of its own from exec on: `python -P -m pwf.runner.spawn.fresh`, started by the zygote.

For workflows that are not safe to fork, or ask for `isolate="spawn"`. Descriptor 3 is its control socket
(one `Load`, one `Loaded`), and from 4 on it has those of a runner. It is already the leader of its session and a
subreaper, and it leaves as any program does, so that exit handlers and finalizers of the workflow's modules run.
"""

from __future__ import annotations

import os
import sys

from pwf.protocol.runner import MARKER_VARIABLE
from pwf.protocol.spawn import RUNNER_DESCRIPTORS, Load
from pwf.runner.base import forking
from pwf.runner.spawn.channel import SpawnSocket
from pwf.runner.spawn.reaping import kill_descendants
from pwf.runner.spawn.template import load, run

CONTROL = 3
OWN = range(4, 4 + RUNNER_DESCRIPTORS)


def main() -> int:
    """Load, answer, run, end."""
    for descriptor in (CONTROL, *OWN):
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
    forking.flush()
    if workflow is None:
        kill_descendants()
    *own, out, err = OWN
    forking.print_to(out, err)
    os.close(out)
    os.close(err)
    control.send(answer)
    control.close()
    return 0 if workflow is None else run(own, workflow)


if __name__ == "__main__":
    sys.exit(main())
