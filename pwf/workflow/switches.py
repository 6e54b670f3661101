"""Whether the cases of a switch are all that can come, and no more, as far as the output's type tells."""

from __future__ import annotations

from typing import Any

from pwf.workflow.faults import Faults
from pwf.workflow.routes import Switch
from pwf.workflow.schema import NoSuchField, Values, fields_of, may_lack, never_scalar, possible_values
from pwf.workflow.suggest import nearest


def check_switch(switch: Switch, types: tuple[Any, dict[str, Any] | None], faults: Faults) -> None:
    """Report missing and extra cases, and fields that the output does not have."""
    returns, schema = types
    if schema is None:
        return  # any JSON: a value without a case fails the run
    name, field = switch.source.id, switch.on
    if field is None and never_scalar(schema):
        faults.add(
            switch.place,
            f"switches on the output of {name!r}, which is an object or a list",
            f'name the field that decides: {name}.switch(on="…"); {nearest("", fields_of(schema))}',
        )
        return
    try:
        values = possible_values(schema, field, exact=not isinstance(returns, dict))
    except NoSuchField:
        faults.add(
            switch.place,
            f"switches on field {field!r} of {name!r}, which its output does not have"
            + (" in every case" if field in fields_of(schema) else ""),
            nearest(str(field), fields_of(schema)),
        )
        return
    if field is not None and may_lack(returns, field):
        faults.add(
            switch.place,
            f"switches on field {field!r} of {name!r}, which may be missing in its output",
            "make the field a required one (and not left out at its default)",
        )
    if values is not None:
        _compare(switch, values, faults)


def _compare(switch: Switch, values: Values, faults: Faults) -> None:
    name = switch.source.id
    what = f"the output of {name!r}" if switch.on is None else f"field {switch.on!r} of {name!r}"
    given = {(type(value), value) for value, _ in switch.cases}
    missing, extra = values - given, given - values
    said, hints = [], []
    if missing:
        said.append(f"has no case for {_listed(missing)}")
        hints.append(f"add a case for each: {name}.switch({_example(missing)}, …)")
    if extra:
        said.append(f"has a case for {_listed(extra)}, which never comes")
        hints = [_nearest_value(extra, values)]
    if said:
        faults.add(switch.place, f"switches on {what}, and {' and '.join(said)}", hints[0])


def _listed(values: Values) -> str:
    return ", ".join(sorted(repr(value) for _, value in values))


def _example(values: Values) -> str:
    _, value = sorted(values, key=repr)[0]
    if isinstance(value, str) and value.isidentifier() and value not in ("on", "cases", "self"):
        return f"{value}=node"
    return f"cases={{{value!r}: node}}"


def _nearest_value(extra: Values, values: Values) -> str:
    texts = [value for _, value in values if isinstance(value, str)]
    for _, value in sorted(extra, key=repr):
        if isinstance(value, str) and (hint := nearest(value, texts)).startswith("did"):
            return hint
    return f"it is one of {_listed(values)}"
