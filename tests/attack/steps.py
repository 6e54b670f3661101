"""Attacks from within: a step that gives a person's word, floods, hides, or takes the daemon with it."""

from __future__ import annotations

import json
import time

from tests.attack.attack import attack, contains, held
from tests.e2e.home import Home

SECRET = b"printed-by-a-step"
OUTPUT_BYTES_MAX = 64 * 1024 * 1024
LOG_BYTES_MAX = 4 * 1024 * 1024

ASKS = """
flow = Workflow("asks", input=dict)

@flow.checkpoint
def approve(ctx):
    return "may it go on?"
"""

ANSWERS = """
import subprocess, sys
flow = Workflow("answers", input=dict)

@flow.action(effect=idempotent("type"))
def type_it(ctx):
    words = ctx.input["words"]
    done = subprocess.run([sys.executable, "-m", "pwf.cli.main", *words], capture_output=True, text=True,
        start_new_session=ctx.input.get("away", False))
    return {"code": done.returncode, "said": done.stdout + done.stderr}
"""

UNKNOWN = """
flow = Workflow("unknown")

@flow.action(effect=manual("send"))
def send(ctx):
    raise OSError("no answer came")
"""

PRINTS = """
import json, os, sys
flow = Workflow("prints")

@flow.action(effect=idempotent("print"))
def loud(ctx):
    print("-".join(["printed", "by", "a", "step"]))
    print(json.dumps({"event": "daemon.failed", "level": "error", "cause": "forged"}), file=sys.stderr)
    for _ in range(600):
        os.write(1, b"x" * 100_000)
        os.write(2, b"y" * 100_000)
"""

KILLS = """
import os, signal
flow = Workflow("kills")

@flow.action(effect=idempotent("kill"))
def fell(ctx):
    runner = os.getpid()
    while True:  # template, zygote, daemon: whatever stands above
        with open(f"/proc/{runner}/stat") as stat:
            parent = int(stat.read().rpartition(")")[2].split()[1])
        with open(f"/proc/{parent}/cmdline") as line:
            words = line.read()
        if parent <= 1:
            break
        runner = parent
        if "daemon" in words and "pwf" in words:
            os.kill(parent, signal.SIGKILL)
            break
    import time
    time.sleep(5)
"""


def typed_by_a_step(home: Home, *words: str, away: bool = False) -> dict[str, object]:
    """What a command said that a step has typed."""
    run = home.start("answers", "--input", json.dumps({"words": words, "away": away}))
    home.wait_status(run, "completed")
    output: dict[str, object] = home.json("show", run)["output"]
    return output if "code" in output else dict(output["json"])  # type: ignore[call-overload]


@attack("a step gives a person's word")
def a_step_answers_a_question(home: Home) -> str:
    """`pwf answer` typed below a step, in a session of its own as well, is refused, and the question stays open."""
    home.workflow("asks", ASKS)
    home.workflow("answers", ANSWERS)
    run = home.start("asks", "--input", "{}")
    home.wait_status(run, "waiting")
    request = home.json("requests")["requests"][0]["request_id"]
    for away in (False, True):
        said = typed_by_a_step(home, "answer", request, "true", away=away)
        held(said["code"] != 0, f"it was taken: {said}")
        held("steps_may_answer" in str(said["said"]), f"the setting is not named: {said}")
    held(home.status(run) == "waiting", "the question is settled")
    return "refused twice; the question is open"


@attack("a step gives a person's word")
def a_step_settles_an_uncertain_effect(home: Home) -> str:
    """`pwf recover` typed below a step is refused."""
    home.workflow("unknown", UNKNOWN)
    home.workflow("answers", ANSWERS)
    run = home.start("unknown")
    home.wait_status(run, "ambiguous")
    said = typed_by_a_step(home, "recover", run, "happened")
    held(said["code"] != 0, f"it was taken: {said}")
    held(home.status(run) == "ambiguous", "the effect is settled")
    return "refused; the effect is ambiguous still"


@attack("what a step prints")
def a_step_prints_secrets_and_forged_records(home: Home) -> str:
    """A step prints a secret, a forged log record and 120 MB: the log has none of it, and the home is bounded."""
    home.workflow("prints", PRINTS)
    run = home.start("prints")
    home.wait_status(run, "completed", "failed", seconds=60)
    log = home.home / "daemon.log"
    held(SECRET not in log.read_bytes(), "the log holds what a step has printed")
    held(not any(line.get("cause") == "forged" for line in home.log()), "a forged record is in the log")
    held(log.stat().st_size < LOG_BYTES_MAX, f"the log has {log.stat().st_size:,} bytes")
    output = sum(path.stat().st_size for path in (home.home / "output").rglob("*") if path.is_file())
    held(output < OUTPUT_BYTES_MAX, f"{output:,} bytes of output are kept")
    held("printed-by-a-step" in home.run("logs", run).stdout, "pwf logs does not show it")
    kept = contains(home.home, SECRET)
    home.run("state", "backup", str(home.home.parent / "copy.db"))
    held(SECRET not in (home.home.parent / "copy.db").read_bytes(), "the backup holds it")
    return f"kept in {len(kept)} file of {output:,} bytes; the log has {log.stat().st_size:,}"


@attack("a step that kills the daemon")
def a_step_kills_the_daemon_again_and_again(home: Home) -> str:
    """A step kills the daemon each time that it runs: after a bound its run is held, and the others go on."""
    home.workflow("kills", KILLS)
    home.workflow("asks", ASKS)
    run = home.start("kills")
    for _ in range(15):
        try:
            if home.status(run) == "held":
                break
        except Exception:  # noqa: BLE001 - it died under the question
            pass
        time.sleep(0.5)
    held(home.status(run) == "held", f"after 15 daemons the run is {home.status(run)}")
    other = home.start("asks", "--input", "{}")
    home.wait_status(other, "waiting")
    return "held as " + str(home.json("show", run)["summary"]["hold"])
