"""Executes source texts that were read before: loaders, the root module, the state of a fresh process.

The resolver and the pinned loader share this, so that what a run executes is loaded exactly as it was
recorded. Nothing here reads a project's source file and nothing writes byte code. Tracebacks and `inspect`
show the given text under the original path, because it is put into `linecache` with no modification time to
compare.
"""

from __future__ import annotations

import importlib
import importlib.util
import linecache
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from types import CodeType, ModuleType
from typing import Any

from pwf.runner.load.tree import ProjectTree

ROOT_MODULE = "__workflow__"  # the root file's name in sys.modules: no project or package can have it

INCLUDED_MODULE = "__included_"  # begins the names of those that it includes by name or path

# The engine's own needs. A project's module of one of these names can not replace it.
RESERVED = frozenset({"pwf", "trio", "msgspec"})


def is_extension(path: str) -> bool:
    """Whether the file is a compiled extension module."""
    return path.endswith(tuple(EXTENSION_SUFFIXES))


def decode(text: bytes) -> str:
    """A source text as Python reads it; undecodable bytes are replaced, for it is only shown."""
    try:
        return importlib.util.decode_source(text)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return text.decode("utf-8", "replace")


def compile_source(text: bytes, path: str) -> CodeType:
    """Compile a source text. Whatever is wrong with it is a `SyntaxError` with the path."""
    try:
        code: CodeType = compile(text, path, "exec", dont_inherit=True)
    except (ValueError, OverflowError) as error:  # null bytes, before Python 3.12
        raise SyntaxError(str(error), (path, 1, None, None)) from None
    except SyntaxError as error:
        if error.filename is None or error.lineno is None:
            raise SyntaxError(error.msg, (path, 1, None, None)) from None
        raise
    return code


def show_as(path: str, text: bytes) -> None:
    """Let tracebacks and `inspect.getsource` show this text for the path, whatever the file holds by then."""
    source = decode(text)
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)


class SourceLoader:
    """Loads one module from a text. `pkgutil.get_data` and `importlib.resources` read other files live.

    An `InspectLoader` by its methods, not by its class: `importlib.abc` would load half of the library into every
    runner.
    """

    all_recorded = False  # of the whole process: what was not recorded is not of the project

    def __init__(self, name: str, path: str, text: bytes, package: bool, texts: Mapping[str, bytes]) -> None:
        self.name = name
        self.path = path
        self._text = text
        self._package = package
        self._texts = texts

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Take Python's ordinary module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the text in the module."""
        show_as(self.path, self._text)
        exec(compile_source(self._text, self.path), module.__dict__)

    def load_module(self, fullname: str) -> ModuleType:
        """The old way in, which some libraries still take."""
        return importlib.import_module(fullname)

    def get_code(self, fullname: str) -> CodeType:
        """The text, compiled."""
        return compile_source(self._text, self.path)

    def get_source(self, fullname: str) -> str:
        """The text."""
        return decode(self._text)

    def get_filename(self, fullname: str | None = None) -> str:
        """The original path."""
        return self.path

    def is_package(self, fullname: str) -> bool:
        """Whether the text is an `__init__`."""
        return self._package

    def get_data(self, path: str | bytes) -> bytes:
        """A recorded text, or the bytes of another file."""
        name = os.fsdecode(path)
        if name in self._texts:
            return self._texts[name]
        with open(name, "rb") as file:
            return file.read()

    def get_resource_reader(self, fullname: str) -> Any:
        """For `importlib.resources`: the files beside the module, or, once all is recorded, what was."""
        if not self.all_recorded:
            from importlib.readers import FileReader

            return FileReader(self)  # type: ignore[arg-type]  # it needs `path` alone
        from pwf.runner.load.resources import Reader  # few steps want it

        return Reader(os.path.dirname(self.path), self._texts)


class ExtensionLoader(ExtensionFileLoader):
    """Loads a compiled module from recorded bytes, through a private file that is gone once it is mapped."""

    def __init__(self, name: str, path: str, data: bytes) -> None:
        super().__init__(name, path)
        self._data = data

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Map the recorded bytes."""
        import tempfile

        with tempfile.TemporaryDirectory(prefix="pwf-extension-") as folder:
            private = os.path.join(folder, os.path.basename(self.path))
            with open(private, "wb") as file:
                file.write(self._data)
            stand_in = ModuleSpec(spec.name, ExtensionFileLoader(spec.name, private), origin=private)
            module = super().create_module(stand_in)
        module.__file__ = self.path
        return module


def spec_of(
    name: str, path: str, text: bytes, texts: Mapping[str, bytes], locations: list[str] | None
) -> ModuleSpec:
    """The import spec of a module whose bytes are known. `locations` is set for a package."""
    loader: Any
    if is_extension(path):
        loader = ExtensionLoader(name, path, text)
    else:
        loader = SourceLoader(name, path, text, locations is not None, texts)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    spec.submodule_search_locations = locations
    return spec


class NamespacePath(list[str]):
    """The folders of a package without `__init__`. `importlib.resources` knows such by the name of this class."""

    def __repr__(self) -> str:
        return f"NamespacePath({super().__repr__()})"


def namespace_spec(name: str, locations: list[str]) -> ModuleSpec:
    """The import spec of a package without `__init__` that stands in these folders."""
    spec = ModuleSpec(name, None, is_package=True)
    spec.submodule_search_locations = NamespacePath(locations)
    return spec


def project_distributions(tree: ProjectTree, context: Any) -> Iterator[Any]:
    """For `importlib.metadata`: what is described beside the project's modules, which are not on `sys.path`."""
    from importlib.metadata import DistributionFinder, MetadataPathFinder

    here = DistributionFinder.Context(name=getattr(context, "name", None), path=list(tree.places))
    yield from MetadataPathFinder.find_distributions(here)


def prepare_process(tree: ProjectTree) -> None:
    """Take the project's folders and the working folder off `sys.path`: only our finder may serve them."""
    live = {"", ".", *tree.places}
    sys.path[:] = [entry for entry in sys.path if entry not in live and os.path.realpath(entry) not in live]


def make_way(names: set[str]) -> None:
    """Forget installed modules that a project's own top-level modules of these names stand before.

    They are loaded because pwf's runner needs them, or their packages do; that code keeps its references.
    """
    wanted = {name for name in names if name in sys.modules}
    if not wanted:
        return
    import trio  # noqa: F401 - all that trio needs is bound before its parts are forgotten

    for loaded in list(sys.modules):
        if loaded.partition(".")[0] in wanted:
            del sys.modules[loaded]


@contextmanager
def standing_in(root: str, path: str) -> Iterator[None]:
    """Load as a run does: in the project's root, with `sys.argv` naming the workflow's file."""
    before, arguments = os.getcwd(), sys.argv
    try:
        os.chdir(root)
    except OSError:
        os.chdir("/")  # the launch says that the root is gone; loading may well work without it
    sys.argv = [path]
    try:
        yield
    finally:
        sys.argv = arguments
        os.chdir(before)


def execute_root(path: str, text: bytes, texts: Mapping[str, bytes]) -> ModuleType:
    """Execute the workflow's file as the module `ROOT_MODULE`, and return it."""
    spec = spec_of(ROOT_MODULE, path, text, texts, None)
    module = importlib.util.module_from_spec(spec)
    sys.modules[ROOT_MODULE] = module
    _answer_to_stem(module, os.path.splitext(os.path.basename(path))[0])
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def execute_included(path: str, text: bytes, texts: Mapping[str, bytes]) -> ModuleType:
    """Execute an included file as a module of its own that nothing can import, and return it."""
    count = sum(name.startswith(INCLUDED_MODULE) for name in sys.modules)
    spec = spec_of(f"{INCLUDED_MODULE}{count}__", path, text, texts, None)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    assert spec.loader is not None
    spec.loader.exec_module(module)
    return module


def project_modules() -> dict[str, ModuleType]:
    """The modules of this process that were loaded here, by their names."""
    ours = (SourceLoader, ExtensionLoader)
    return {name: one for name, one in list(sys.modules.items()) if isinstance(_loader(one), ours)}


def _loader(module: object) -> object:
    """What has loaded it, without asking code of a module that stands for another."""
    if not issubclass(type(module), ModuleType):
        return None
    return getattr(object.__getattribute__(module, "__dict__").get("__spec__"), "loader", None)


def _answer_to_stem(module: ModuleType, stem: str) -> None:
    """Let helpers import the workflow's file by its name, where nothing else has that name."""
    if not stem.isidentifier() or stem in sys.modules:
        return
    try:
        taken = importlib.util.find_spec(stem) is not None
    except (ImportError, ValueError):
        taken = False
    if not taken:
        sys.modules[stem] = module
