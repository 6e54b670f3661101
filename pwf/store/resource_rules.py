"""The rules that must hold across the tables of a managed resource. Each query lists the uids that break one."""

from __future__ import annotations

from pwf.store.entity_kinds import Rule
from pwf.store.queries import load_queries

Q = load_queries(__file__)

_RESTART = "restart the daemon (pwf stop, pwf start): recovery settles it"
_RECONCILE = "pwf resource reconcile {name}"
_REPORT = "a fault of pwf: report it, with a copy of the database (pwf state backup FILE)"

#: Those that list runs.
ABOUT_RUNS = ("child_stray", "child_twice")

#: query -> (message, fix)
_RULES: dict[str, tuple[str, str]] = {
    "reconcile_unowned": ("it is being reconciled, but has no lease or process", _RESTART),
    "resource_owned": ("somebody owns it, but it is not being reconciled", _RESTART),
    "resource_kept_back_due": ("it is paused or held, but is due all the same", _REPORT),
    "resource_forgotten": ("its spec was not reconciled, and nothing will bring that", _RECONCILE),
    "resource_gone_open": ("it is gone, but something is still open for it", _REPORT),
    "resource_lingers": ("it is to go and nothing keeps it, but it is there", _RECONCILE),
    "child_orphaned": ("it is gone and took its runs with it, but one goes on", _REPORT),
    "child_stray": ("a run is the child of a resource that is not there", _REPORT),
    "child_twice": ("it was started although its resource had such a child before", _REPORT),
    "finalizer_stray": ("a finalizer belongs to a resource that is gone", _REPORT),
}

RESOURCE_RULES: dict[str, Rule] = {
    name: Rule(getattr(Q, name), message, fix, about=name not in ABOUT_RUNS)
    for name, (message, fix) in _RULES.items()
}
