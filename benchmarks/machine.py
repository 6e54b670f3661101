"""Facts about the machine that numbers depend on. Nothing that identifies whose it is."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from pathlib import Path

import apsw
import psutil


def machine() -> dict[str, str]:
    """Processor, memory, disk, versions, and how busy it was at the start."""
    return {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "file system": _file_system(Path(tempfile.gettempdir())),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "load": f"{os.getloadavg()[0]:.2f}",
    }


def busy() -> str | None:
    """A warning when others use the machine: numbers taken now say little."""
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 0.5 * cores:
        return (
            f"the load was {load:.1f} on {cores} cores before anything was measured: these numbers say little"
        )
    return None


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _file_system(folder: Path) -> str:
    found, kind = "", "unknown"
    for part in psutil.disk_partitions(all=True):
        if folder.is_relative_to(part.mountpoint) and len(part.mountpoint) >= len(found):
            found, kind = part.mountpoint, part.fstype
    return kind
