"""`flow.settings(…)`: a typed value that may be changed while a run goes on, checked when the file loads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pwf.errors import InvalidArgument, PwfError
from pwf.protocol.settings import PATHS_MAX, SETTINGS_BYTES_MAX, Access, PathRule, SettingsActor, SettingsSpec
from pwf.values import canonical
from pwf.workflow.callables import is_async, misfit
from pwf.workflow.schema import closed, decoder_of, first_fault, schema_of
from pwf.workflow.source import Place

Paths = Mapping[str, Mapping[SettingsActor, Sequence[Access]]]
Check = Callable[[Any], str | None]
Add = Callable[[str, str | None], None]

POINTER = re.compile(r"(/([^~/]|~[01])*)*", re.DOTALL)
ACTORS: tuple[str, ...] = get_args(SettingsActor)
ACCESSES: tuple[str, ...] = get_args(Access)
PATHS_HINT = 'paths={"": {"human": ["read"]}, "/workers": {"human": ["read", "replace"]}}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What an author has declared."""

    type: Any
    initial: Any
    paths: Paths
    check: Check | None
    place: Place

    @property
    def decoded_type(self) -> Any:
        """What `ctx.settings` decodes to; None for any JSON."""
        return None if isinstance(self.type, dict) else self.type

    def objection(self, value: bytes) -> str | None:
        """What the type or `check=` has against a value; None: nothing. Raises what the author's function raises."""
        decoded = decoder_of(self.decoded_type).decode(value)
        said = None if self.check is None else self.check(decoded)
        if said is None or (isinstance(said, str) and said.strip()):
            return said
        return f"check= returned a value of type {type(said).__name__}: it must return None, or a text that says why"


def settings_spec(settings: Settings, add: Add) -> SettingsSpec | None:
    """As data. What is wrong is added to the faults."""
    rules = _rules(settings.paths, add)
    if settings.check is not None and not _is_check(settings.check, add):
        return None
    try:
        schema = None if settings.type is None else closed(settings.type, schema_of(settings.type))
        initial = canonical(settings.initial, limit=SETTINGS_BYTES_MAX, what="the initial settings")
    except PwfError as error:
        add(f"has settings that can not be kept: {error.message}", error.hint)
        return None
    fault = None if schema is None else first_fault(schema, initial)
    if fault is None:
        fault = _objection(settings, initial)
    if fault is not None:
        add(
            f"has initial settings that do not fit: {fault}",
            "give initial= a value of the type, which check= accepts",
        )
    return SettingsSpec(
        schema=schema, initial=initial.decode(), paths=rules, checks=settings.check is not None
    )


def _objection(settings: Settings, initial: bytes) -> str | None:
    try:
        return settings.objection(initial)
    except Exception as error:  # noqa: BLE001 - user code
        return f"{type(error).__name__}: {error}"


def _rules(paths: Any, add: Add) -> tuple[PathRule, ...]:
    if not isinstance(paths, Mapping) or len(paths) > PATHS_MAX:
        add(f"has settings with paths={paths!r:.60}", f"give at most {PATHS_MAX}: {PATHS_HINT}")
        return ()
    found = []
    for path, may in paths.items():
        good = isinstance(path, str) and POINTER.fullmatch(path) and isinstance(may, Mapping)
        if not good or not all(actor in ACTORS and _are_accesses(said) for actor, said in may.items()):
            add(
                f"has settings with {path!r:.60}: {may!r:.100} in paths=",
                f"a JSON Pointer for each of {', '.join(ACTORS)}, with some of {', '.join(ACCESSES)}: {PATHS_HINT}",
            )
            continue
        found.append(PathRule(path=path, may={actor: tuple(said) for actor, said in may.items()}))
    return tuple(found)


def _are_accesses(said: Any) -> bool:
    return isinstance(said, Sequence) and not isinstance(said, str) and all(one in ACCESSES for one in said)


def _is_check(check: Any, add: Add) -> bool:
    wrong = "is no function" if not callable(check) else misfit(check, ("value",))
    if wrong is None and is_async(check):
        wrong = "is async"
    if wrong is not None:
        add(
            f"has settings with a check= that {wrong}", "give a plain function of the value: None, or why not"
        )
    return wrong is None


def refuse_second(earlier: Settings | None, name: str, place: Place) -> None:
    """Raise `InvalidArgument` where a workflow has settings already."""
    if earlier is not None:
        raise InvalidArgument(f"{place}: workflow {name!r} has settings already, at {earlier.place}")
