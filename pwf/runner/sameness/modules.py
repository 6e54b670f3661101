"""The project's modules: whether their names, and what lies directly in what these name, are as they were.

Owns a shallow copy of it, made once after loading. What is compared: the names of each module, the containers that they
name, the attributes of classes and of other objects there, functions with their defaults, closures and attributes, and
how far an `lru_cache` is filled. What lies deeper, or in objects of C code, it can't see; where it knows that it can't
(an iterator), or there is too much to compare, it says so each time. Promises: objects are compared by identity, and
asked for nothing by ways of their own (`__class__`, `__getattr__`, an `items` of theirs); where one raises all the same
while this is made, nothing is the same. Must never change a module, but for the note of a warning that Python has put
there.
"""

from __future__ import annotations

import os
import sys
from _thread import RLock, allocate_lock
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import _lru_cache_wrapper, partial
from operator import attrgetter, is_
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

ENTRIES_MAX = 50_000  # of all that is compared: a look takes 25 ns for each
DEPTH_MAX = 2  # a module's names, what these name, and what lies directly in that
_WARNED = "__warningregistry__"
_PLAIN = frozenset(
    {str, int, float, complex, bool, bytes, type(None), CodeType, BuiltinFunctionType, tuple, frozenset}
)
_ORDERED = (list, set, deque)
_LOCKS = (type(allocate_lock()), RLock)
#: Of modules only the project's; loggers are looked at as a whole; a path never changes, but notes what it has found.
_APART = (("types", "ModuleType"), ("logging", "Logger"), ("pathlib", "PurePath"))
_of_function = attrgetter("__code__", "__defaults__", "__kwdefaults__")
_attributes_of = attrgetter("__dict__")

Modules = Mapping[str, ModuleType]


class ProjectState:
    """As it is now. `find` gives the project's modules by their names."""

    def __init__(self, find: Callable[[], Modules]) -> None:
        self._find = find
        self._modules = dict(find())
        self._names = frozenset(vars(module).get("__name__") for module in self._modules.values())
        self._unseen: str | None = None  # what can't be compared
        self._entries = 0
        self._seen: set[int] = set()
        self._mappings: list[tuple[str, Any, tuple[object, ...], tuple[object, ...]]] = []
        self._items: list[tuple[str, Any, tuple[object, ...]]] = []
        self._objects: list[tuple[str, Callable[[], Iterable[object]], tuple[object, ...]]] = []
        self._states: list[tuple[str, Callable[[], object], object]] = []
        self._functions: list[tuple[str, FunctionType]] = []
        for name, module in self._modules.items():
            self._take_module(name, module)
        functions = tuple(function for _, function in self._functions)
        self._bare = tuple(function for function in functions if not function.__dict__)
        self._all_functions, self._function_states = functions, tuple(map(_of_function, functions))
        self._loaded = _loaded()
        self._seen.clear()

    def differs(self) -> str | None:
        """What is not as it was, or can't be compared, in words; None when all is as before."""
        if self._unseen is not None:
            return self._unseen
        modules = sys.modules
        for name, module in self._modules.items():
            if modules.get(name) is not module:
                return f"module {name}, which is another by now"
            if _WARNED in vars(module):
                del vars(module)[_WARNED]  # noted by Python, at a warning
        if (now := _loaded()) != self._loaded:
            added = self._find().keys() - self._modules.keys()
            if added:
                return (
                    f"module {min(added)}, which a step imported: import it at the top of the workflow's file"
                )
            self._loaded = now
        return self._differs_inside()

    def _differs_inside(self) -> str | None:
        for label, mapping, keys, values in self._mappings:
            if len(mapping) != len(keys) or not (
                all(map(is_, mapping.values(), values)) and all(map(is_, mapping, keys))
            ):
                return _named(label, mapping, keys, values)
        for label, items, before in self._items:
            if len(items) != len(before) or not all(map(is_, items, before)):
                return label
        if any(map(_attributes_of, self._bare)) or not all(
            map(_same_function, map(_of_function, self._all_functions), self._function_states)
        ):
            return self._named_function()
        for label, find, objects in self._objects:
            found = tuple(find())
            if len(found) != len(objects) or not all(map(is_, found, objects)):
                return label
        for label, read, state in self._states:
            if read() != state:
                return label
        return None

    def _named_function(self) -> str:
        for (label, function), state in zip(self._functions, self._function_states, strict=True):
            if not _same_function(_of_function(function), state) or (
                function in self._bare and function.__dict__
            ):
                return label
        return "a function"

    # --- taking it ---------------------------------------------------------------------------------------------

    def _take_module(self, name: str, module: ModuleType) -> None:
        names = vars(module)
        names.pop(_WARNED, None)
        if id(names) in self._seen:
            return  # the workflow's file, by its second name
        self._seen.add(id(names))
        if name.startswith("__"):
            name = os.path.basename(module.__file__ or name).removesuffix(".py")
        self._mapping(name, names)
        for key, value in tuple(names.items()):
            if not (key.startswith("__") and key.endswith("__")):
                self._take(f"{name}.{key}", value, 1)

    def _take(self, label: str, value: Any, depth: int) -> None:
        kind = type(value)
        if kind in _PLAIN or depth > DEPTH_MAX or id(value) in self._seen or self._unseen is not None:
            return
        self._seen.add(id(value))
        try:
            if issubclass(kind, FunctionType):
                self._take_function(label, value, depth)
            elif issubclass(kind, (dict, *_ORDERED)):
                self._take_container(label, value, kind)
            else:
                self._take_object(label, value, kind, depth)
        except BaseException as error:  # noqa: BLE001 - user code: descriptors and metaclasses of the project's objects
            self._unseen = f"{label}, which could not be looked at: {type(error).__name__}"

    def _take_container(self, label: str, value: Any, kind: type) -> None:
        if kind is dict:
            self._mapping(label, value)
        elif issubclass(kind, dict):
            if self._has_room(2 * dict.__len__(value)):
                self._same_objects(label, lambda: (*dict.keys(value), *dict.values(value)))
        elif kind in _ORDERED:
            if self._has_room(len(value)):
                self._items.append((label, value, tuple(value)))
        else:
            (base,) = (one for one in _ORDERED if issubclass(kind, one))
            if self._has_room(base.__len__(value)):
                self._same_objects(label, lambda: base.__iter__(value))

    def _take_object(self, label: str, value: Any, kind: type, depth: int) -> None:
        if issubclass(kind, bytearray):
            self._state(label, lambda: bytes(value))
        elif issubclass(kind, _lru_cache_wrapper):
            self._state(label, lambda: value.cache_info()[1::2])
            self._take(label, value.__wrapped__, depth)
        elif issubclass(kind, _loaded_type("random", "Random")):
            self._state(label, value.getstate)
        elif issubclass(kind, _LOCKS):
            # An RLock has no `locked` before Python 3.14.
            self._state(label, lambda: repr(value).startswith("<locked"))
        elif issubclass(kind, type):
            names = type.__getattribute__(value, "__dict__")
            if names.get("__module__") in self._names:
                self._mapping(label, names)
                self._take_each(label, names, depth)
        else:
            self._take_parts(label, value, kind, depth)

    def _take_parts(self, label: str, value: Any, kind: type, depth: int) -> None:
        if issubclass(kind, staticmethod | classmethod):
            self._take(label, value.__func__, depth)
        elif issubclass(kind, MethodType):
            self._take(label, value.__func__, depth)
            self._take(label, value.__self__, depth)
        elif issubclass(kind, property):
            for part in (value.fget, value.fset, value.fdel):
                self._take(label, part, depth)
        elif issubclass(kind, partial):
            self._take(label, value.func, depth)
            self._take(label, value.keywords, depth)
        elif any("__next__" in vars(one) for one in kind.__mro__):
            self._unseen = f"{label}, an iterator, whose state can't be compared"
        elif depth < DEPTH_MAX and not any(issubclass(kind, _loaded_type(*apart)) for apart in _APART):
            self._take_instance(label, value, kind, depth)

    def _take_instance(self, label: str, value: Any, kind: type, depth: int) -> None:
        attributes = _attribute(value, "__dict__")
        if type(attributes) is dict:
            self._mapping(label, attributes)
            self._take_each(label, attributes, depth)
        slots = _slots(kind)
        if slots:
            self._same_objects(label, lambda: [_attribute(value, name) for name in slots])
            self._take_each(label, {name: _attribute(value, name) for name in slots}, depth)

    def _take_each(self, label: str, attributes: Mapping[str, Any], depth: int) -> None:
        for name, value in tuple(attributes.items()):
            if not (str(name).startswith("__") and str(name).endswith("__")):
                self._take(f"{label}.{name}", value, depth + 1)

    def _take_function(self, label: str, function: FunctionType, depth: int) -> None:
        self._functions.append((label, function))
        if function.__dict__:
            self._mapping(label, function.__dict__)
            self._take_each(label, function.__dict__, depth)
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._take(f"a default of {label}", value, depth + 1)
        for cell, name in zip(function.__closure__ or (), function.__code__.co_freevars, strict=True):
            self._same_objects(f"{name} in {label}", partial(_contents, cell))
            for content in _contents(cell):
                self._take(f"{name} in {label}", content, depth + 1)

    def _mapping(self, label: str, mapping: Mapping[Any, Any]) -> None:
        if self._has_room(len(mapping)):
            self._mappings.append((label, mapping, tuple(mapping), tuple(mapping.values())))

    def _same_objects(self, label: str, find: Callable[[], Iterable[object]]) -> None:
        self._objects.append((label, find, tuple(find())))

    def _state(self, label: str, read: Callable[[], object]) -> None:
        self._states.append((label, read, read()))

    def _has_room(self, entries: int) -> bool:
        self._entries += entries
        if self._entries > ENTRIES_MAX:
            self._unseen = f"the project's modules, which hold more than {ENTRIES_MAX:,} entries to compare"
        return self._unseen is None


def _same_function(now: tuple[object, ...], before: tuple[object, ...]) -> bool:
    return all(map(is_, now, before))


def _contents(cell: Any) -> tuple[object, ...]:
    """What is in a cell of a closure."""
    try:
        return (cell.cell_contents,)
    except ValueError:  # nothing yet
        return (_NOTHING,)


def _loaded_type(module: str, name: str) -> Any:
    """A type of the library, if anybody has loaded it: nobody else can have made an object of it."""
    return getattr(sys.modules.get(module), name, ())


def _attribute(value: object, name: str) -> Any:
    """What is there, without asking code of the value's type for what is not."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return _NOTHING


def _slots(kind: type) -> tuple[str, ...]:
    found: list[str] = []
    for one in kind.__mro__:
        names = vars(one).get("__slots__", vars(one).get("__struct_fields__", ()))
        for name in (names,) if isinstance(names, str) else names:
            is_private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{one.__name__.lstrip('_')}{name}" if is_private else name)
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))


def _loaded() -> tuple[int, str]:
    """What tells whether a module was loaded: how many there are, and the last."""
    return len(sys.modules), next(reversed(sys.modules))


def _named(label: str, mapping: Mapping[Any, Any], keys: Iterable[object], values: Iterable[object]) -> str:
    """The first entry that is otherwise, where its key is a name."""
    before = dict(zip(map(id, keys), values, strict=True))
    names = [key for key in keys if isinstance(key, str)]
    for key in [*mapping, *names]:
        if isinstance(key, str) and (key not in mapping or before.get(id(key), _NOTHING) is not mapping[key]):
            return f"{label}.{key}"
    return label


_NOTHING = object()
