"""A peer's script for the tests: tells a row, and leaves a process behind in another session."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers.telling import arguments, engine, tell, tell_best, tell_latency


def main() -> None:
    asked = arguments()
    engine("Fake 1.0", "none at all")
    tell_latency("called", [[0.001] * asked.times])
    tell_best({"slow": [1.0, 2.0, 3.0], "fast": [10.0, 20.0, 30.0]})
    code = "import time; time.sleep(600)"
    left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.DEVNULL)
    Path(asked.needs).write_text(str(left.pid))
    if asked.part == "fails":
        raise ValueError("it does not work")
    tell("durable_steps", "last", [5.0], "steps/s", note=asked.part)


if __name__ == "__main__":
    main()
