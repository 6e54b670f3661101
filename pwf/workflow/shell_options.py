"""Checks the options of `@flow.shell(…)` when its decorator runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

from pwf.errors import InvalidValue
from pwf.workflow.callables import is_async, misfit
from pwf.workflow.faults import Fault
from pwf.workflow.shell import ShellOptions, check_text, check_variable
from pwf.workflow.suggest import nearest

MAX_OUTPUT_LIMIT = 64 * 1024 * 1024  # what one value may hold

#: Option -> the arguments of a function in its place, the plain types it may have, and how to say so.
_MAY_BE_FUNCTIONS: dict[str, tuple[tuple[str, ...], tuple[type, ...], str]] = {
    "cwd": (("ctx",), (str, PathLike), "a path"),
    "env": (("ctx",), (Mapping,), "a dict of texts"),
    "stdin": (("ctx",), (str, bytes), "text, bytes"),
    "parse": (("result",), (), '"json", "lines"'),
    "on_line": (("ctx", "line", "stream"), (str, re.Pattern), "a regular expression"),
}


def shell_options(given: Mapping[str, Any], fault: Fault) -> ShellOptions:
    """The options as the runner needs them, or `GraphError`."""
    shell = _shell(given["shell"], fault)
    codes = _codes(given["ok_exit_codes"], fault)
    max_output = given["max_output"]
    if type(max_output) is not int or not 1 <= max_output <= MAX_OUTPUT_LIMIT:
        fault.refuse(
            f"has max_output={max_output!r:.60}", f"give a number of bytes from 1 to {MAX_OUTPUT_LIMIT:,}"
        )
    for name, (arguments, plain, wanted) in _MAY_BE_FUNCTIONS.items():
        if given[name] is not None and not isinstance(given[name], plain):
            _check_function(name, given[name], arguments, wanted, fault)
    if isinstance(given["env"], Mapping):
        _check_variables(given["env"], fault)
    on_line = _on_line(given["on_line"], fault)
    return ShellOptions(
        node=fault.id, **{**given, "shell": shell, "ok_exit_codes": codes, "on_line": on_line}
    )


def _shell(shell: Any, fault: Fault) -> tuple[str, ...] | None:
    if shell is None:
        return None
    words = (shell, "-c") if isinstance(shell, str) else tuple(shell) if isinstance(shell, Sequence) else ()
    if not words or not all(isinstance(word, str) and word for word in words):
        fault.refuse(f"has shell={shell!r:.60}", 'write shell="/bin/sh", or shell=["/bin/bash", "-euc"]')
    return words


def _on_line(given: Any, fault: Fault) -> Any:
    if not isinstance(given, str | re.Pattern):
        return given
    from pwf.workflow.lines import LinePattern

    try:
        return LinePattern(given)
    except InvalidValue as error:
        fault.refuse(f"has on_line={given!r:.60}: {error.message}", error.hint or "give a regular expression")


def _codes(given: Any, fault: Fault) -> tuple[int, ...]:
    codes = tuple(given) if isinstance(given, Sequence | set | frozenset) else (given,)
    if not codes or not all(type(code) is int and 0 <= code <= 255 for code in codes):
        fault.refuse(f"has ok_exit_codes={given!r:.60}", "give numbers from 0 to 255: ok_exit_codes=(0, 1)")
    return codes


def _check_function(name: str, value: Any, arguments: tuple[str, ...], wanted: str, fault: Fault) -> None:
    if name == "parse" and isinstance(value, str):
        if value not in ("json", "lines"):
            fault.refuse(f"has parse={value!r:.40}", nearest(value, ("json", "lines")))
        return
    function = f"a plain function of ({', '.join(arguments)})"
    if not callable(value) or inspect.isclass(value):
        fault.refuse(
            f"has {name}={value!r:.60}", f"give {wanted} or {function}" if wanted else f"give {function}"
        )
    if is_async(value):
        fault.refuse(f"has an async function as {name}=", f"give {function}")
    if wrong := misfit(value, arguments):
        fault.refuse(f"has a function {name}= that {wrong}", f"give {function}")


def _check_variables(env: Mapping[Any, Any], fault: Fault) -> None:
    for name, value in env.items():
        try:
            check_variable(name, "env")
            check_text(value, f"env[{name!r:.40}]")
        except InvalidValue as error:
            fault.refuse(f"is wrong: {error.message}", "variables are text: env={'COUNT': str(3)}")
