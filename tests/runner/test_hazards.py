"""A template is forked from only if loading left nothing behind that a fork would break or share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runner.spawning import ZygotePeer, graph_of, one_node


@pytest.fixture(scope="module")
def zygote() -> Iterator[ZygotePeer]:
    peer = ZygotePeer()
    yield peer
    assert peer.stop() == 0


HAZARDS = {
    "a thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "it started 1 thread",
    ),
    "a thread of C code": (
        """
        import ctypes
        start = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        libc = ctypes.CDLL(None)
        thread = ctypes.c_ulong()
        libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.sleep, ctypes.c_void_p), ctypes.c_void_p(60))
        """,
        "it started 1 thread",
    ),
    "an open file": ("file = open('/etc/passwd')", "descriptors open"),
    "a socket": ("import socket\nconnection = socket.socket()", "descriptors open"),
    "a child": ("import subprocess\nchild = subprocess.Popen(['sleep', '60'])", "it left a child process"),
    "a grandchild whose parent ended": (
        "import os\nos.system('setsid sleep 60 &')",
        "it left a child process",
    ),
    "a signal handler": (
        "import signal\nsignal.signal(signal.SIGUSR1, lambda *a: None)",
        "the handler of SIGUSR1",
    ),
    "a signal that is ignored by C code": (
        "import ctypes\nctypes.CDLL(None).signal(12, ctypes.c_void_p(1))",
        "a signal's handling",
    ),
    "a blocked signal": (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
        "the signal mask",
    ),
    "an exit handler": ("import atexit\natexit.register(print)", "it registered 1 exit handler"),
    "a finalizer": (
        "import tempfile\nfolder = tempfile.TemporaryDirectory()",
        "1 finalizer to run at exit",
    ),
}


@pytest.mark.parametrize("name", HAZARDS)
def test_a_workflow_that_leaves_it_behind_is_not_forked_from(
    name: str, zygote: ZygotePeer, tmp_path: Path
) -> None:
    head, reason = HAZARDS[name]
    template, loaded = zygote.template(one_node(tmp_path, head=head))
    assert loaded.error is None
    assert loaded.unsafe is not None
    assert reason in loaded.unsafe
    exited = zygote.exit_of(template.identity)
    assert (exited.status, exited.clean) == (0, True), "it ended, and so did what it had started"


HARMLESS = {
    "nothing": "",
    "logging": "import logging\nlog = logging.getLogger('x')",
    "common modules": "import asyncio, json, random, re, socket, ssl, sqlite3, subprocess, tempfile, threading",
    "a child that was waited for": "import subprocess\nsubprocess.run(['true'], check=True)",
    "a file that was closed": "with open('/etc/passwd') as file:\n    text = file.read()",
    "a thread that was joined": "import threading\nt = threading.Thread(target=int)\nt.start()\nt.join()",
    "a handler that was restored": (
        "import signal\nold = signal.signal(signal.SIGUSR1, signal.SIG_IGN)\nsignal.signal(signal.SIGUSR1, old)"
    ),
    "a finalizer that does not run at exit": (
        "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print).atexit = False"
    ),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_workflow_that_leaves_nothing_behind_is_forked_from(
    name: str, zygote: ZygotePeer, tmp_path: Path
) -> None:
    bundle = one_node(tmp_path, body="return 'ran'", head=HARMLESS[name])
    template, loaded = zygote.template(bundle)
    assert (loaded.error, loaded.unsafe) == (None, None)
    assert template.fork().run(graph_of(bundle)) == "ran"
    template.link.close()
    assert zygote.exit_of(template.identity).status == 0


def test_several_hazards_are_all_named(zygote: ZygotePeer, tmp_path: Path) -> None:
    head = (
        "import atexit, socket\natexit.register(print)\natexit.register(repr)\nconnection = socket.socket()"
    )
    _, loaded = zygote.template(one_node(tmp_path, head=head))
    assert loaded.unsafe is not None
    assert "descriptors open" in loaded.unsafe
    assert "2 exit handlers" in loaded.unsafe
