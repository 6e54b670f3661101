"""The one process that watches files for all resources: `python -m pwf.watching.process`.

In: a line `Watch` on stdin replaces all that is watched. Out: a line `Changed` on stdout for what differs from its
mark. Promises: a difference is told when the path is first watched, and then as soon as the kernel says that something
has happened there; where the kernel can't, by looking every few seconds. It ends when its stdin does. If it dies: the
daemon starts another, which compares all anew, so nothing is lost.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Iterable
from typing import Literal

import msgspec
from watchfiles import watch

from pwf.protocol.watching import Changed, Watch, watch_line
from pwf.watching.marks import mark_of_tree

STEP_MS = 200  # how often the watching thread looks whether the kernel has said something
QUIET_MS = 400  # changes that come close together are one
ARMED_MS = 1_000  # after that the kernel watches for certain
LOOK_S = 5.0  # where the kernel can't say anything
LOOK_ALL_S = 300.0  # in case it has not said everything

Said = Literal["happened", "armed", "over"]


class FileWatch:
    """All that is watched: folders with all below them, and the folders in which single files and missing names are."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}
        self._news: queue.SimpleQueue[Watch | Said] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._blind = False  # the kernel could not watch something: look by ourselves

    def run(self) -> None:
        """Serve until stdin ends."""
        threading.Thread(target=self._listen, daemon=True).start()
        wait_s: float | None = None
        while True:
            try:
                news = self._news.get(timeout=wait_s)
            except queue.Empty:
                news = "happened"
            if news == "over":
                return
            if isinstance(news, Watch):
                self._told = dict(news.marks)
            if news != "armed":
                self._rearm()
            self._tell()
            wait_s = None if not self._told else LOOK_S if self._blind else LOOK_ALL_S

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            self._news.put(watch_line.decode(line))
        self._news.put("over")

    def _tell(self) -> None:
        changed: dict[str, str] = {}
        for path, told in self._told.items():
            mark = mark_of_tree(path)
            if mark != told:
                self._told[path] = changed[path] = mark
        if changed:
            sys.stdout.buffer.write(msgspec.json.encode(Changed(marks=changed)) + b"\n")
            sys.stdout.buffer.flush()

    def _rearm(self) -> None:
        """Watch what is there now: a path may have come, gone, or become another."""
        self._stop.set()
        self._stop = threading.Event()
        self._blind = False
        whole = {path for path in self._told if os.path.isdir(path)}
        single = set(map(_nearest_folder, self._told))
        for paths, recursive in ((whole, True), (single, False)):
            if paths:
                arguments = (sorted(paths), recursive, self._stop)
                threading.Thread(target=self._watch, args=arguments, daemon=True).start()

    def _watch(self, paths: Iterable[str], recursive: bool, stop: threading.Event) -> None:
        armed = False
        try:
            for changes in watch(
                *paths,
                watch_filter=None,
                debounce=QUIET_MS,
                step=STEP_MS,
                stop_event=stop,
                rust_timeout=ARMED_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                recursive=recursive,
                ignore_permission_denied=True,
            ):
                if changes:
                    self._news.put("happened")
                    return  # all is armed anew
                if not armed:
                    armed = True
                    self._news.put("armed")  # what happened before that is found by looking once more
        except (OSError, RuntimeError):  # too many, or gone in this moment
            self._blind = True
            self._news.put("armed")


def _nearest_folder(path: str) -> str:
    """The folder in which the path's name, or the first name on the way to it that is missing, would come or go."""
    folder = os.path.dirname(path)
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def main() -> None:
    """Watch until the daemon closes stdin."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    FileWatch().run()


if __name__ == "__main__":
    main()
