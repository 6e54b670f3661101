"""`--budget KEY=NUMBER`: what the agents of a run may use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pwf.cli.commands import Parser
from pwf.cli.out import UsageError

if TYPE_CHECKING:
    from pwf.budgets import Budget

EXAMPLE = "--budget tokens=100000 --budget money=2.5"
KEYS = ("tokens", "money", "minutes", "steps")


def add_budget(parser: Parser, what: str) -> None:
    """Declare the option."""
    parser.add_argument(
        "--budget",
        metavar="KEY=NUMBER",
        action="append",
        default=[],
        help=f"{what}: {', '.join(KEYS)}; may be repeated",
    )


def budget_of(typed: list[str]) -> Budget | None:
    """What was typed; None where nothing was. Raises `UsageError`."""
    if not typed:
        return None
    import msgspec

    from pwf.budgets import Budget

    given: dict[str, float] = {}
    for text in typed:
        key, _, number = text.partition("=")
        try:
            value = float(number.replace("_", "").replace(",", ""))
            if key not in KEYS or not math.isfinite(value):
                raise ValueError
        except ValueError:
            raise UsageError(f"--budget {text} is no budget", hint=EXAMPLE) from None
        given[key] = int(value) if key in ("tokens", "steps") and value == int(value) else value
    try:
        return msgspec.convert(given, Budget)
    except msgspec.ValidationError as error:
        raise UsageError(f"--budget: {error}", hint=EXAMPLE) from None
