"""This pwf's version, as clients name it."""

from __future__ import annotations

import os
import sys

_PREFIX, _SUFFIX = "pwf_workflows-", ".dist-info"


def version() -> str:
    """The installed distribution's version; `0` when pwf runs from a bare source tree.

    It reads the name of the distribution's folder: importlib.metadata costs more time than all of `pwf
    status`.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                return name[len(_PREFIX) : -len(_SUFFIX)]
    return "0"
