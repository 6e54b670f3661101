"""What a source text names: the modules it may import, and the files it opens by a literal path.

Works on the syntax tree alone and runs nothing. It looks everywhere in the text, inside functions too,
because a run that has waited for a week may reach such an import only then.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

_DYNAMIC = frozenset({"import_module", "__import__", "run_module"})
_LOOKS = frozenset({"iter_modules", "walk_packages", "entry_points", "find_spec", "resolve_name"})
_READS = frozenset({"read_text", "read_bytes", "open"})


@dataclass(frozen=True)
class Named:
    """A dotted module name at a line. `sure` is False for `from a import b`, where `a.b` may be no module."""

    name: str
    line: int
    sure: bool = True


@dataclass(frozen=True)
class Findings:
    """What one text names. `computed` are the lines of imports whose name is computed at run time.

    `discovers`: modules that it does not name may be meant, since names are computed or looked for. `within`: packages
    that such names begin with. `plugins`: it asks for entry points.
    """

    modules: tuple[Named, ...] = ()
    reads: tuple[tuple[int, str], ...] = ()
    computed: tuple[int, ...] = ()
    discovers: bool = False
    within: tuple[str, ...] = ()
    plugins: bool = False


def findings(text: bytes, path: str, *, module: str, is_package: bool) -> Findings:
    """Parse a text and list what it names. `module` resolves relative imports. Raises `SyntaxError`."""
    package = module if is_package else module.rpartition(".")[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as invalid escapes: compiling the text says them
        tree = ast.parse(text, path)
    modules: list[Named] = []
    reads: list[tuple[int, str]] = []
    computed: list[int] = []
    within: list[str] = []
    looks: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [Named(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules += _from_import(node, package)
        elif isinstance(node, ast.Call):
            called = _called(node.func)
            if called in _LOOKS:
                looks.add(called)
                within += _prefixes(node)
            if called in _DYNAMIC:
                name = _dynamic_name(node, package)
                if name is None:
                    computed.append(node.lineno)
                    within += _prefixes(node)
                else:
                    modules.append(Named(name, node.lineno))
            elif (opened := _opened_path(node)) is not None:
                reads.append((node.lineno, opened))
    return Findings(
        modules=tuple(modules),
        reads=tuple(sorted(reads)),
        computed=tuple(sorted(computed)),
        discovers=bool(looks or computed),
        within=tuple(within),
        plugins="entry_points" in looks,
    )


def absolute(name: str, level: int, package: str) -> str | None:
    """The dotted name of a relative import, or None when it climbs above its package."""
    if level == 0:
        return name
    parts = package.split(".") if package else []
    if level > len(parts):
        return None
    base = ".".join(parts[: len(parts) - level + 1])
    return f"{base}.{name}" if name else base


def _from_import(node: ast.ImportFrom, package: str) -> Iterator[Named]:
    base = absolute(node.module or "", node.level, package)
    if not base:
        return
    yield Named(base, node.lineno)
    for alias in node.names:
        if alias.name != "*":
            yield Named(f"{base}.{alias.name}", node.lineno, sure=False)


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute):
        return function.attr
    return ""


def _dynamic_name(call: ast.Call, package: str) -> str | None:
    """The module of `import_module("literal")`; its package may be a literal, else it is the text's own."""
    if not call.args:
        return None
    name = _literal(call.args[0])
    if name is None:
        return None
    stem = name.lstrip(".")
    level = len(name) - len(stem)
    if level == 0:
        return name
    given = call.args[1] if len(call.args) > 1 else None
    given = next((word.value for word in call.keywords if word.arg == "package"), given)
    if given is not None and (literal := _literal(given)) is not None:
        return absolute(stem, level, literal)
    return absolute(stem, level, package)


def _prefixes(call: ast.Call) -> Iterator[str]:
    """The package that a computed name begins with: of f"plugins.{name}", and of "plugins." + name."""
    first = call.args[0] if call.args else None
    while isinstance(first, ast.BinOp):
        first = first.left
    if isinstance(first, ast.JoinedStr) and first.values:
        first = first.values[0]
    text = _literal(first) if first is not None else None
    if text is not None and "." in text and not text.startswith("."):
        yield text.rpartition(".")[0]


def _opened_path(call: ast.Call) -> str | None:
    """The path of `open("x")` or `Path("x").read_text()`, when it is read and not written."""
    function = call.func
    if isinstance(function, ast.Name) and function.id == "open" and call.args:
        return _literal(call.args[0]) if _reads(call, 1) else None
    if isinstance(function, ast.Attribute) and function.attr in _READS:
        made = function.value
        if isinstance(made, ast.Call) and _called(made.func) == "Path" and len(made.args) == 1:
            return _literal(made.args[0]) if function.attr != "open" or _reads(call, 0) else None
    return None


def _reads(call: ast.Call, position: int) -> bool:
    mode = call.args[position] if len(call.args) > position else None
    mode = next((word.value for word in call.keywords if word.arg == "mode"), mode)
    if mode is None:
        return True
    text = _literal(mode)
    return text is not None and not set(text) & set("wax+")


def _literal(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
