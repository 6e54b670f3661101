"""`python -m tests.fuzz [--seconds N] [TARGET…]`: coverage-guided fuzzing of each target, for a bounded time.

atheris is installed into a virtual environment of its own, beside the tests' one. Where there is none for this Python
the run says so and ends well: the same properties run in `make test` without guidance. A failing input is kept in
`.fuzz/TARGET/`; `python -m tests.fuzz --replay TARGET FILE` shows it again, without atheris. `live-daemon` needs no
guidance and no atheris: it drives the socket of a real daemon, and bounds its callbacks and its memory.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

from tests.fuzz import live
from tests.fuzz.targets import TARGETS, property_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".fuzz"
PACKAGE = "atheris>=2.3"
LIVE = "live-daemon"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "targets", metavar="TARGET", nargs="*", help=f"of {', '.join((*TARGETS, LIVE))}; all of them"
    )
    parser.add_argument("--seconds", type=int, default=30, help="for each target (30)")
    parser.add_argument("--replay", nargs=2, metavar=("TARGET", "FILE"), help="run one kept input again")
    options = parser.parse_args()
    if options.replay:
        target, file = options.replay
        property_of(target).hypothesis.fuzz_one_input(Path(file).read_bytes())
        print(f"{target}: nothing wrong with {file}")
        return 0
    if unknown := set(options.targets) - {*TARGETS, LIVE}:
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    wanted = options.targets or [*TARGETS, LIVE]
    failed = [LIVE] if LIVE in wanted and not driven(options.seconds) else []
    python = interpreter() if set(wanted) - {LIVE} else None
    for name in wanted if python is not None else ():
        if name != LIVE and not guided(python, name, options.seconds):
            failed.append(name)
            print(f"FAILED {name}: python -m tests.fuzz --replay {name} {FOLDER / name}/crash-…")
    print("fuzz: " + ("; ".join(failed) + " failed" if failed else "clean"))
    return 1 if failed else 0


def driven(seconds: int) -> bool:
    """A campaign against a live daemon; whether its rules held. Its seed is the time, and is told."""
    first_seed = int(time.time())
    with tempfile.TemporaryDirectory(prefix="pwf-fuzz-") as folder:
        try:
            seen = live.campaign(Path(folder), seconds=seconds, first_seed=first_seed)
            print(f"{LIVE:<14} seed {first_seed}: {live.told(seen)}", flush=True)
            live.check(seen)
        except AssertionError as broken:
            print(f"FAILED {LIVE}: seed {first_seed}: {broken}")
            return False
    return True


def interpreter() -> str | None:
    """A Python that has atheris and all that the tests have; None, with the reason told, where there is none."""
    home = FOLDER / "venv"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        ours = "\n".join([str(ROOT), sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]])
        libraries = next((home / "lib").glob("python3*/site-packages"))
        (libraries / "tests.pth").write_text(ours + "\n")
    if subprocess.run([python, "-c", "import atheris"], capture_output=True, check=False).returncode == 0:
        return str(python)
    install = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--only-binary=:all:",
    ]
    done = subprocess.run([*install, PACKAGE], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["pip failed"])[-1]
        print(f"fuzz: skipped, there is no atheris for Python {sys.version.split()[0]} here: {reason}")
        return None
    return str(python)


def guided(python: str, target: str, seconds: int) -> bool:
    """One run; whether nothing failed. The corpus is kept, so that the next run goes on from it."""
    folder = FOLDER / target
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    command = [python, "-m", "tests.fuzz.guided", target, str(corpus)]
    limits = [f"-max_total_time={seconds}", "-max_len=4096", "-rss_limit_mb=2048", "-timeout=20"]
    done = subprocess.run(
        [*command, *limits, f"-artifact_prefix={folder}/", "-print_final_stats=1", "-verbosity=0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    wanted = ("stat::number_of_executed_units", "stat::average_exec_per_sec")
    lines = done.stderr.splitlines()
    figures = [line.split("::")[1] for line in lines if line.startswith(wanted)]
    kept = len(list(corpus.iterdir()))
    print(
        f"{target:<14} {'ok' if done.returncode == 0 else 'FAILED'}  {'; '.join(figures)}; corpus {kept}",
        flush=True,
    )
    if done.returncode != 0:
        print("\n".join(done.stdout.splitlines()[-40:] + lines[-40:]))
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
