"""`python -m tests.attack [NAME…]`: try every attack, and say which were held.

As root it acts as two further users of this machine; otherwise it says what it left out. Exit code 1: something broke.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.attack.attack import ATTACKS, Attack, Broken, LeftOut, load
from tests.e2e.home import Home


def main() -> int:
    load()
    parser = argparse.ArgumentParser(
        prog="python -m tests.attack", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("names", metavar="NAME", nargs="*", help="some of them; all")
    parser.add_argument("--list", action="store_true", help="say what there is, and try nothing")
    options = parser.parse_args()
    if unknown := set(options.names) - set(ATTACKS):
        parser.error(f"there is no attack {', '.join(sorted(unknown))}; --list shows them")
    chosen = [ATTACKS[name] for name in options.names or ATTACKS]
    if options.list:
        for one in chosen:
            print(f"{one.name:<40} {one.does}")
        return 0
    counts: Counter[str] = Counter()
    for one in chosen:
        verdict, said = attempt(one)
        counts[verdict] += 1
        print(f"{verdict:<8} {one.name:<40} {said}", flush=True)
    print("attack: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return 1 if counts["BROKEN"] else 0


def attempt(one: Attack) -> tuple[str, str]:
    """One attack in a home of its own: the verdict, and what was seen."""
    folder = Path(tempfile.mkdtemp(prefix="pwf-attack-"))
    home = Home(folder)
    begun = time.monotonic()
    try:
        said = one.act(home)
    except LeftOut as missing:
        return "left out", str(missing)
    except Broken as broken:
        return "BROKEN", str(broken)
    except Exception:  # noqa: BLE001 - an attack that can't be tried shows nothing
        return "BROKEN", "the attack itself failed:\n" + traceback.format_exc()
    finally:
        home.end()
        shutil.rmtree(folder, ignore_errors=True)
    return "held", f"{said} ({time.monotonic() - begun:.1f} s)"


if __name__ == "__main__":
    sys.exit(main())
