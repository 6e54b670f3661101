"""Settings of a run: a typed value that may be changed while the run goes on, and who may change what of it.

Owns their declaration as data, and the payloads of the operations. Never applies a patch: the daemon does.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pwf.protocol.operation import Operation

SettingsActor = Literal["human", "session", "manager"]
Access = Literal["read", "add", "remove", "replace"]

Scope = Annotated[str, msgspec.Meta(max_length=1_000)]

PATCH_OPERATIONS_MAX = 256
PATCH_BYTES_MAX = 64 * 1024
SETTINGS_BYTES_MAX = 256 * 1024
PATHS_MAX = 100


class _Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class PathRule(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What each may do at `path` (a JSON Pointer) and below it, unless a longer path says otherwise.

    Who is not named may nothing there.
    """

    path: str
    may: dict[SettingsActor, tuple[Access, ...]]


class SettingsSpec(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`initial`: a text of canonical JSON. `checks`: a function of the workflow has a word on each change."""

    schema: dict[str, Any] | None = None
    initial: str
    paths: tuple[PathRule, ...] = ()
    checks: bool = False


class ScopedCopy(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an included workflow that were changed. They are those of one `entry`, a visit of its mount."""

    entry: int
    value: msgspec.Raw


class SettingsCopy(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings after their `change`; 0: as the workflow declares them. `value`: null where it declares none.

    `scopes`: by mount, those of included workflows that were changed.
    """

    change: int
    value: msgspec.Raw
    scopes: dict[str, ScopedCopy] = {}


class GetSettings(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`scope`: the mount of an included workflow, for that one's own; the run is the frame's."""

    scope: Scope = ""


class SettingsView(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the caller may read of them. `hidden`: there is more. `paths`: who may do what. `schema`: their type."""

    run_id: str
    scope: str = ""
    change: int
    value: msgspec.Raw
    hidden: bool = False
    paths: tuple[PathRule, ...] = ()
    schema: dict[str, Any] | None = None


class ChangeSettings(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`patch`: a JSON Patch (RFC 6902). `expected_change`: only if none of the run's has been changed since.

    `scope`: as of `GetSettings`; while the run is in it.
    """

    patch: msgspec.Raw
    scope: Scope = ""
    expected_change: Annotated[int, msgspec.Meta(ge=0)] | None = None


class SettingsChanged(_Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """They are as after `change`, which the next step of the run sees."""

    run_id: str
    change: int
    revision: int


SETTINGS_OPERATIONS = {
    "settings.get": Operation(GetSettings, SettingsView, needs_run=True),
    "settings.change": Operation(ChangeSettings, SettingsChanged, needs_run=True, changes=True),
}
