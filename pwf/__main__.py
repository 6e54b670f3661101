"""`python -m pwf`: the same as `pwf`."""

from __future__ import annotations

import sys

from pwf.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
