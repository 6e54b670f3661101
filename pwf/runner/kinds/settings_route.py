"""Settings routes: a pure function of the settings, whose result counts only if no newer change has won meanwhile.

The daemon decides that, since it knows all changes: it throws the result away, and the node runs again.
"""

from __future__ import annotations

from pwf.protocol.kinds import NodeKind
from pwf.runner.kinds import compute

KIND: NodeKind = "settings_route"
run = compute.run
