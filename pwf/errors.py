"""Every exception pwf raises, with one root and one stable wire code each.

A code never changes its meaning once released: clients in other languages switch on it. `hint` says what a
person can type or change next. Foreign errors (apsw, OSError, msgspec) are translated into these at the edge.
"""

from __future__ import annotations

import sys


class PwfError(Exception):
    """Something went wrong in pwf."""

    code = "error"

    def __init__(
        self, message: str | None = None, *, hint: str | None = None, details: object = None
    ) -> None:
        self.message = message if message is not None else (type(self).__doc__ or "").strip()
        self.hint = hint
        self.details = details
        super().__init__(self.message)


# --- what the author of a workflow or a caller got wrong -------------------------------------------------


class InvalidValue(PwfError):
    """The value is not canonical JSON."""

    code = "invalid_value"


class ValueTooLarge(PwfError):
    """The value is larger than the limit."""

    code = "value_too_large"


class InvalidInput(PwfError):
    """The input does not have the type that the workflow declares."""

    code = "invalid_input"


class InvalidAnswer(PwfError):
    """The answer does not have the type that the request declares."""

    code = "invalid_answer"


class InvalidArgument(PwfError):
    """An argument of the operation is wrong."""

    code = "invalid_argument"


class GraphError(PwfError):
    """The workflow's graph is not sound."""

    code = "graph_error"


class NoWorkflow(GraphError):
    """The file defines no workflow: it is a helper, and listed nowhere."""

    code = "no_workflow"


class LoadFailed(PwfError):
    """The workflow's file could not be loaded."""

    code = "load_failed"


class Untrusted(PwfError):
    """Somebody else can change what would be executed."""

    code = "untrusted"


class EnvironmentMissing(PwfError):
    """The interpreter is gone, has no pwf that can serve the run, or lacks a package that is needed."""

    code = "environment_missing"


def extra_missing(what: str, package: str, extra: str) -> EnvironmentMissing:
    """`what` needs a package that comes with an extra of pwf; the hint installs it for this interpreter."""
    return EnvironmentMissing(
        f"{what} needs the package {package}, which is not installed in {sys.prefix}",
        hint=extra_command(extra),
    )


def extra_command(extra: str) -> str:
    """What installs an extra of pwf for this interpreter."""
    return f"{sys.executable} -m pip install 'pwf-workflows[{extra}]'"


class ContentWanted(PwfError):
    """A value that the request names was not sent, or not to the daemon that serves now."""

    code = "content_wanted"


class VariablesWanted(PwfError):
    """The workflow declares variables that its start did not bring, and the client may have them."""

    code = "variables_wanted"


class SecretMissing(PwfError):
    """The value of a secret can't be had."""

    code = "secret_missing"


class SourceChanged(PwfError):
    """A recorded source file has changed, and the workflow asked for source="verify"."""

    code = "source_changed"


class ConfigError(PwfError):
    """The configuration file has a mistake."""

    code = "config_error"


# --- what the store answers -------------------------------------------------------------------------------


class NotFound(PwfError):
    """There is no such thing."""

    code = "not_found"


class Ambiguous(PwfError):
    """More than one run matches."""

    code = "ambiguous"


class Conflict(PwfError):
    """It has changed since you looked, or exists with other content."""

    code = "conflict"


class Rejected(PwfError):
    """It is not possible in the present state."""

    code = "rejected"


class PersonNeeded(Rejected):
    """Only a person may do this."""

    code = "person_needed"


class TokenRefused(PwfError):
    """The link or the sign-in is unknown, was used, or is over."""

    code = "token_refused"


class ClaimLost(PwfError):
    """The writer no longer owns what it wants to write."""

    code = "claim_lost"


class Unavailable(PwfError):
    """It could not be done just now; nothing is known to have changed."""

    code = "unavailable"


class OutcomeUnknown(Unavailable):
    """The commit failed in a way that does not say whether it happened (outcome unknown)."""

    code = "outcome_unknown"


class DiskFull(Unavailable):
    """The disk is full."""

    code = "disk_full"


class StateFull(Unavailable):
    """The database has reached its budget."""

    code = "state_full"


class ValueDamaged(PwfError):
    """A stored value is not what was stored."""

    code = "value_damaged"


class StoreRefused(PwfError):
    """The database can not be served by this daemon."""

    code = "store_refused"


class StoreBroken(PwfError):
    """The store failed in a way that only a restart from the file can settle."""

    code = "store_broken"


# --- processes and protocol -------------------------------------------------------------------------------


class EffectUnknown(PwfError):
    """Nobody knows whether an effect happened: it is observed when the step runs again, or a person is asked."""

    code = "effect_unknown"


class EffectAbandoned(Rejected):
    """A person gave the effect up, as nobody can find out about it: it may have happened, and is not tried again."""

    code = "effect_abandoned"


class ProtocolError(PwfError):
    """The other side sent something that is not in the protocol."""

    code = "protocol_rejected"


class FrameTooLarge(ProtocolError):
    """The frame is larger than the limit."""

    code = "frame_too_large"


class RunnerCrashed(PwfError):
    """The runner process ended by itself."""

    code = "runner_crashed"


class AlreadyServing(PwfError):
    """Another daemon serves this home."""

    code = "already_serving"


class DaemonUnreachable(PwfError):
    """The daemon can not be reached."""

    code = "daemon_unreachable"


class HomeRefused(PwfError):
    """The state folder can not be used."""

    code = "home_refused"


def by_code(code: str) -> type[PwfError]:
    """The exception class of a wire code; `PwfError` for one this version does not know."""
    return _BY_CODE.get(code, PwfError)


def _collect(root: type[PwfError]) -> dict[str, type[PwfError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found.update(_collect(child))
    return found


_BY_CODE = _collect(PwfError)
