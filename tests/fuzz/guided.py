"""`python -m tests.fuzz.guided TARGET [libFuzzer options]`: one coverage-guided run. Needs atheris (see __main__)."""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-not-found]

from tests.fuzz.targets import property_of


def main() -> None:
    """Feed the target until the time is over. A failure is an uncaught exception: libFuzzer keeps its bytes."""
    with atheris.instrument_imports(include=["pwf", "json"]):  # loads what is tested
        target = property_of(sys.argv[1])
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.hypothesis.fuzz_one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
