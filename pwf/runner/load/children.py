"""Python processes that a step starts by `multiprocessing` (spawn, forkserver) execute the pinned code, too.

Such a process begins as an empty interpreter. Before it unpickles its work, it runs the module that its parent's
`__main__` names. So in a runner `__main__` names this one, which loads the bundle there as the runner did. The bundle
is handed over as a file that lives as long as the runner, and is made when it is asked for first.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec

import msgspec

from pwf.protocol.spawn import SourceBundle
from pwf.runner.load.pinned import load_bundle
from pwf.workflow.load import Defined

CODE_VARIABLE = "PWF_PINNED_CODE"  # the file with the bundle, for all that a runner starts


class MainSpec(ModuleSpec):
    """The spec of a runner's `__main__`. Whoever asks for its name is about to start such a process."""

    def __init__(self, bundle: SourceBundle) -> None:
        self._bundle = bundle
        self._offer = (0, "")  # by which process, and where
        super().__init__(__name__, None, origin=__file__)

    @property
    def name(self) -> str:
        """This module, for the new process to run."""
        if self._offer[0] != os.getpid():  # a fork has none of the descriptors of who it was forked from
            self._offer = os.getpid(), _offer(msgspec.msgpack.encode(self._bundle))
        os.environ[CODE_VARIABLE] = self._offer[1]  # each time: a step's variables go with it
        return __name__

    @name.setter
    def name(self, name: str) -> None:
        assert name == __name__


def load_with_children(bundle: SourceBundle) -> Defined:
    """As `load_bundle`; and what `multiprocessing` starts here loads this bundle first."""
    sys.modules["__main__"].__spec__ = MainSpec(bundle)
    return load_bundle(bundle)


def _offer(data: bytes) -> str:
    """The path of a file with these bytes: where the system has such, one that goes with this process."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pwf-pinned-code")
        path = f"/proc/{os.getpid()}/fd/{descriptor}"
    else:
        import tempfile

        descriptor, path = tempfile.mkstemp(prefix="pwf-pinned-code-")
    with open(descriptor, "wb", closefd=not path.startswith("/proc/")) as file:
        file.write(data)
    return path


def _load() -> None:
    with open(os.environ[CODE_VARIABLE], "rb") as file:
        load_bundle(msgspec.msgpack.decode(file.read(), type=SourceBundle))


if __name__ == "__mp_main__":
    _load()
