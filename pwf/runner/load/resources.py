"""`importlib.resources` of the project's packages: modules as they were recorded, other files as they are.

A step that looks through a package's folder for plugins finds those that its run has, and none that came later.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping
from importlib.resources.abc import TraversableResources
from pathlib import Path
from typing import Any

_SOURCE = (".py", ".pyc", "__pycache__")


class Reader(TraversableResources):
    """What a loader gives for one package."""

    def __init__(self, folder: str, texts: Mapping[str, bytes]) -> None:
        self._folder = folder
        self._texts = texts

    def files(self) -> Any:
        """The package's folder."""
        return _path(self._folder, self._texts)


class PinnedPath(type(Path())):  # type: ignore[misc]  # as plain Python, which gives a path of the system
    """A path below a package, at which recorded texts are what stands there."""

    texts: Mapping[str, bytes] = {}  # of the one project that this process has

    def iterdir(self) -> Iterator[Any]:
        """What stands in the folder: of sources only the recorded ones."""
        found = {name for name in self._live() if not name.endswith(_SOURCE)}
        start = os.path.join(self, "")
        found |= {text[len(start) :].partition(os.sep)[0] for text in self.texts if text.startswith(start)}
        return (self / name for name in sorted(found))

    def _live(self) -> list[str]:
        try:
            return os.listdir(self)
        except FileNotFoundError:
            return []

    def exists(self, **options: Any) -> bool:
        return self.is_file() or self.is_dir()

    def is_file(self, **options: Any) -> bool:
        return str(self) in self.texts or super().is_file(**options)

    def is_dir(self, **options: Any) -> bool:
        start = os.path.join(self, "")
        return super().is_dir(**options) or any(text.startswith(start) for text in self.texts)

    def open(self, mode: str = "r", *args: Any, **options: Any) -> Any:
        """The recorded text, or the file."""
        data = self.texts.get(str(self))
        if data is None or set(mode) & set("wax+"):
            return super().open(mode, *args, **options)
        file = io.BytesIO(data)
        return file if "b" in mode else io.TextIOWrapper(file, options.get("encoding") or "utf-8")

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return bytes(file.read())

    def read_text(self, encoding: str | None = None, *args: Any, **options: Any) -> str:
        with self.open("r", encoding=encoding) as file:
            return str(file.read())


def _path(folder: str, texts: Mapping[str, bytes]) -> PinnedPath:
    PinnedPath.texts = texts
    return PinnedPath(folder)
