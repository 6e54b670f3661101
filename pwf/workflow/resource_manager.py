"""`ResourceManager`: the object that an author's file makes, and that resolver and reconciling process read."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar, overload

import msgspec

from pwf.errors import GraphError, InvalidArgument, PwfError
from pwf.ids import check_id
from pwf.protocol.graph import DEFAULT_RECONCILE_MS, ManagerSpec, WorkflowGraph
from pwf.protocol.reconcile import STATUS_BYTES_MAX, WATCHED_MAX
from pwf.values import canonical
from pwf.workflow.callables import is_async, misfit
from pwf.workflow.check import check_code_options, check_declared_names
from pwf.workflow.faults import Faults
from pwf.workflow.reconcile_context import Outcome, ReconcileContext
from pwf.workflow.resource import Resource
from pwf.workflow.schema import closed, decoder_of, never_scalar, schema_of
from pwf.workflow.source import Place, author_frame, first_line
from pwf.workflow.timing import to_ms
from pwf.workflow.written import names

SpecT = TypeVar("SpecT")
StatusT = TypeVar("StatusT")

DEFAULT_DEADLINE = timedelta(milliseconds=DEFAULT_RECONCILE_MS)
DEADLINE_MAX = timedelta(days=1)

Reconciler = Callable[[ReconcileContext, Resource[SpecT, StatusT]], Outcome]
AsyncReconciler = Callable[[ReconcileContext, Resource[SpecT, StatusT]], Coroutine[Any, Any, Outcome]]
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class ManagerOptions:
    """What an author gave to `ResourceManager`, as it is."""

    name: Any
    spec: Any
    status: Any
    initial_status: Any
    every: Any
    watch: Any
    deadline: Any
    isolate: Any
    files: tuple[Any, ...]
    environment: tuple[Any, ...]
    secrets: tuple[Any, ...]


class ResourceManager(Generic[SpecT, StatusT]):
    """Keeps things as their specs want them. Its file is `.pwf/resources/NAME.py`, and bears its name.

    `spec`: the type of what people want of a resource (or a JSON Schema). `status`: the type of what the manager keeps
    of it; `initial_status`: how that begins (else, the type with its defaults). `every`: reconcile a settled resource
    again after so long. `watch`: files and folders whose change wakes a resource, relative to the project's root; or a
    function of the spec that names them. `deadline`: how long one reconcile may take (60 s). `isolate`, `files`,
    `environment`, `secrets`: as of a `Workflow`; an apply takes the variables along.
    """

    @overload
    def __init__(
        self: ResourceManager[Any, Any],
        name: str,
        *,
        spec: dict[str, Any],
        status: dict[str, Any] | None = None,
        initial_status: dict[str, Any] | None = None,
        every: timedelta | None = None,
        watch: Sequence[str] | Callable[[Any], Sequence[str]] = (),
        deadline: timedelta = DEFAULT_DEADLINE,
        isolate: Literal["fork", "spawn"] = "fork",
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        secrets: Sequence[str] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: ResourceManager[SpecT, Any],
        name: str,
        *,
        spec: type[SpecT],
        status: dict[str, Any] | None = None,
        initial_status: dict[str, Any] | None = None,
        every: timedelta | None = None,
        watch: Sequence[str] | Callable[[SpecT], Sequence[str]] = (),
        deadline: timedelta = DEFAULT_DEADLINE,
        isolate: Literal["fork", "spawn"] = "fork",
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        secrets: Sequence[str] = (),
    ) -> None: ...
    @overload
    def __init__(
        self,
        name: str,
        *,
        spec: type[SpecT],
        status: type[StatusT],
        initial_status: StatusT | None = None,
        every: timedelta | None = None,
        watch: Sequence[str] | Callable[[SpecT], Sequence[str]] = (),
        deadline: timedelta = DEFAULT_DEADLINE,
        isolate: Literal["fork", "spawn"] = "fork",
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        secrets: Sequence[str] = (),
    ) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        spec: Any,
        status: Any = None,
        initial_status: Any = None,
        every: timedelta | None = None,
        watch: Sequence[str] | Callable[[Any], Sequence[str]] = (),
        deadline: timedelta = DEFAULT_DEADLINE,
        isolate: Literal["fork", "spawn"] = "fork",
        files: Sequence[str] = (),
        environment: Sequence[str] = (),
        secrets: Sequence[str] = (),
    ) -> None:
        frame = author_frame()
        self.place = Place(frame.f_code.co_filename, frame.f_lineno)
        self._doc = first_line(frame.f_globals.get("__doc__"))
        self._options = ManagerOptions(
            name=name,
            spec=spec,
            status=status,
            initial_status=initial_status,
            every=every,
            watch=watch,
            deadline=deadline,
            isolate=isolate,
            files=names(files),
            environment=names(environment),
            secrets=names(secrets),
        )
        self.fn: Callable[..., Any] | None = None
        self._fn_place: Place | None = None
        self._checked: WorkflowGraph | None = None

    def __repr__(self) -> str:
        return f"<resource manager {self.name!r} at {self.place}>"

    @property
    def name(self) -> str:
        """The manager's name, which is its file's."""
        name: str = self._options.name
        return name

    @property
    def is_async(self) -> bool:
        """Whether its function is an async one."""
        return self.fn is not None and is_async(self.fn)

    def reconcile(self, fn: FunctionT, /) -> FunctionT:
        """The decorator of the one function `reconcile(ctx, resource)`, plain or async (trio).

        It looks at the world, does the next thing that brings it nearer to the spec, and returns `ctx.settled(…)` or
        `ctx.requeue(…)`. It may be ended at any point, and is then called again.
        """
        place = Place.of_function(fn, Place.of_caller()) if callable(fn) else Place.of_caller()
        if not callable(fn):
            raise GraphError(
                f"{place}: @manager.reconcile was given {fn!r:.80}, which is not a function",
                hint="write @manager.reconcile above def reconcile(ctx, resource):",
            )
        if self.fn is not None:
            raise GraphError(
                f"{place}: manager {self.name!r} has a reconcile function already, at {self._fn_place}",
                hint="remove one of the two",
            )
        self.fn, self._fn_place = fn, place
        return fn

    def check(self) -> None:
        """Check the whole. `GraphError` names every fault; a second call costs nothing."""
        self.to_graph()

    def to_graph(self) -> WorkflowGraph:
        """What the file declares, as data."""
        if self._checked is None:
            self._checked = self._check()
        return self._checked

    def read_spec(self, data: bytes) -> Any:
        """JSON as the declared type of a spec. Raises `msgspec.ValidationError`."""
        return decoder_of(_as_type(self._options.spec)).decode(data)

    def read_status(self, data: bytes) -> Any:
        """JSON as the declared type of a status. Raises `msgspec.ValidationError`."""
        return decoder_of(_as_type(self._options.status)).decode(data)

    def watched(self, spec: Any) -> tuple[str, ...]:
        """The files and folders whose change wakes a resource with this spec, as absolute paths: the working folder
        is the project's root. Raises `InvalidArgument`."""
        watch = self._options.watch
        found = watch(spec) if callable(watch) else watch
        paths = (found,) if isinstance(found, str) else tuple(found or ())
        for path in paths:
            if not isinstance(path, str) or not path or "\0" in path:
                raise InvalidArgument(
                    f"watch= of manager {self.name!r} names {path!r:.80}",
                    hint="name files and folders by their path",
                )
        if len(paths) > WATCHED_MAX:
            raise InvalidArgument(
                f"watch= of manager {self.name!r} names {len(paths)} paths",
                hint=f"name at most {WATCHED_MAX}: a folder stands for all that is in it",
            )
        return tuple(dict.fromkeys(map(os.path.abspath, paths)))

    # --- checks ---------------------------------------------------------------------------------------------

    def _check(self) -> WorkflowGraph:
        options, faults = self._options, Faults(str(self.name), what="manager")
        add = functools.partial(faults.add, self.place)
        try:
            check_id(str(options.name), "the name")
        except InvalidArgument as error:
            add(error.message, error.hint)
        check_code_options(options.isolate, ("fork", "spawn"), options.files, add)
        check_declared_names(options.environment, options.secrets, add)
        spec_schema = _object_schema(options.spec, "spec", add)
        status_schema = None if options.status is None else _object_schema(options.status, "status", add)
        initial = self._initial_status(add) if status_schema is not None or options.status is None else b"{}"
        every_ms = _ms(options.every, "every", add)
        deadline_ms = _ms(options.deadline, "deadline", add) or DEFAULT_RECONCILE_MS
        if deadline_ms > to_ms(DEADLINE_MAX, "deadline"):
            hint = "a reconcile takes a day at most: start a child run for what takes longer"
            add(f"has a deadline of {options.deadline}", hint)
        self._check_watch(add)
        self._check_function(faults)
        faults.raise_any()
        assert self._fn_place is not None
        return WorkflowGraph(
            name=self.name,
            start="",
            nodes=(),
            file=self.place.file,
            doc=self._doc,
            isolate=options.isolate,
            files=options.files,
            environment=options.environment,
            secrets=options.secrets,
            manager=ManagerSpec(
                spec_schema=spec_schema,
                status_schema=status_schema,
                initial_status=initial.decode(),
                every_ms=every_ms,
                watches=bool(options.watch),
                deadline_ms=deadline_ms,
                is_async=self.is_async,
                line=self._fn_place.line,
            ),
        )

    def _initial_status(self, add: Any) -> bytes:
        options = self._options
        given = options.initial_status
        try:
            if given is None:
                given = self.read_status(b"{}")
            data = status_bytes(given, "initial_status")
            self.read_status(data)
        except (msgspec.ValidationError, PwfError) as error:
            why = error.message if isinstance(error, PwfError) else str(error)
            if options.initial_status is None:
                add(
                    f"has no initial_status, and its status can not begin empty: {why}",
                    "give each field of the status a default, or initial_status=…",
                )
            else:
                add(
                    f"has an initial_status that is none of its status: {why}",
                    "give a value of the status type",
                )
            return b"{}"
        if not data.startswith(b"{"):
            add(f"has initial_status={given!r:.60}", "give an object")
        return data

    def _check_watch(self, add: Any) -> None:
        watch = self._options.watch
        if callable(watch):
            if is_async(watch):
                add("has an async watch=", "make it a plain function")
            elif wrong := misfit(watch, ("spec",)):
                add(f"has a watch= that {wrong}", "let it take one argument, the spec")
            return
        try:
            self.watched(None)
        except (InvalidArgument, TypeError) as error:
            hint = error.hint if isinstance(error, InvalidArgument) else None
            add(f"has watch={watch!r:.60}", hint or "give a list of paths, or a function of the spec")

    def _check_function(self, faults: Faults) -> None:
        fn, place = self.fn, self._fn_place or self.place
        if fn is None:
            faults.add(
                place,
                "has no reconcile function",
                "write @manager.reconcile above def reconcile(ctx, resource):",
            )
        elif inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            faults.add(
                place, "has a reconcile function that yields", "return ctx.settled(…) or ctx.requeue(…)"
            )
        elif wrong := misfit(fn, ("ctx", "resource")):
            faults.add(
                place, f"has a reconcile function that {wrong}", "let it take two arguments: ctx and resource"
            )


def status_bytes(value: Any, what: str) -> bytes:
    """A status as it is kept: canonical JSON without nulls, since a merge patch takes null for "no such key"."""
    data = canonical(value, limit=STATUS_BYTES_MAX, what=what)
    return canonical(_without_nulls(msgspec.json.decode(data))) if b"null" in data else data


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(item) for key, item in value.items() if item is not None}


def _as_type(declared: Any) -> Any:
    return None if isinstance(declared, dict) else declared


def _object_schema(declared: Any, what: str, add: Any) -> dict[str, Any] | None:
    """The schema of the spec or status, which must be an object."""
    try:
        schema = closed(declared, schema_of(declared))
    except InvalidArgument as error:
        add(f"has a {what} that can not be used: {error.message}", error.hint)
        return None
    if not isinstance(declared, dict) and not never_scalar(schema):
        add(f"has a {what} that is no object", "use a msgspec Struct, a dataclass or a TypedDict")
    return schema


def _ms(given: Any, what: str, add: Any) -> int | None:
    if given is None:
        return None
    try:
        return to_ms(given, f"{what}=")
    except InvalidArgument as error:
        add(f"is wrong: {error.message}", error.hint)
        return None
