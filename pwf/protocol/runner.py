"""Messages between the daemon and its helpers: runner, template, zygote, resolver.

A runner talks NDJSON over one stream socket that it inherits. The daemon sends `Launch`, then one `StepReply` for each
message with a `seq`. The runner sends transitions, which the daemon applies in the order of `seq` (1, 2, 3 …) under
run and generation. A runner may go on to a pure node before the reply to its last message, and must wait for every
reply before an effect, a request or a timer. Its last transition may come together with `Leaving`, and is not answered
then.

Over a second inherited socket, the *values* socket, go blocking calls, one at a time, from any thread: reads of larger
outputs, files and secrets (`ReadValue` -> `ValueChunk`…, `ReadSecret` -> `SecretAnswer`), and what a step says of its
effects in mid-step (`BeginPart`, `SettlePart`, and `PutChunk` for their larger values, of which the last one ->
`PartAnswer`). The first socket would not do: its transitions are pipelined and only the main thread takes their
replies, while an effect is made in the middle of a step, by any thread, which must know that the row is on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from pwf.errors import ProtocolError
from pwf.protocol.agents import AgentCommand, Limited
from pwf.protocol.graph import EffectMode, WorkflowGraph
from pwf.protocol.kinds import Outcome, RequestKind
from pwf.protocol.mounts import Entries
from pwf.protocol.nesting import NESTING_MAX, is_too_deep
from pwf.protocol.raw import OptionalRaw
from pwf.protocol.settings import SettingsCopy
from pwf.protocol.survivors import Survivor

M = TypeVar("M", bound="FromRunner | RunnerCall")

RUNNER_FRAME_BYTES_MAX = 8 * 1024 * 1024
CALL_BYTES_MAX = 1024 * 1024  # a frame on the values socket: a chunk, or a small value with an error
UPDATES_MAX = 64  # current items a run
UPDATE_BYTES_MAX = 64 * 1024  # of each
UPDATE_NAME_MAX = 128  # characters of its type, and of its key
EXIT_UNFIT = 78  # of a runner that could not become its run's: no step has begun (sysexits.h: configuration)
NOT_KEPT_CHARS_MAX = 500
REASON_CHARS_MAX = 8_000  # of why a submission is rejected
CONVERSATION_CHARS_MAX = 1_024  # of what an agent's conversation is known by
REF_CHARS_MAX = 1_024  # of an effect's external reference
PART_CHARS_MAX = 200  # of the key that the code gives to an effect in mid-step
MARKER_VARIABLE = "PWF_RUN_MARKER"  # `run_marker`, in every process of a runner
WAITING_MARKER = (
    "pwf:waiting:0"  # of a runner that has no run yet, or none just now, in the form of a run's marker
)

# Whatever a step's code writes on its runner's socket, each number fits its column, and each digest may be one.
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Digest = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
PartName = Annotated[str, msgspec.Meta(min_length=1, max_length=PART_CHARS_MAX)]


def run_marker(home_id: str, run_id: str, generation: int) -> str:
    """What every process of a runner bears in its environment."""
    return f"{home_id}:{run_id}:{generation}"


def marked_run(marker: str) -> str | None:
    """The run that a marker names; None for one of a process that has no run."""
    run_id, _, generation = marker.partition(":")[2].rpartition(":")
    return run_id if run_id and generation.isdigit() and int(generation) > 0 else None


def effect_key(name: str, node: str, visit: int, part: str = "") -> str:
    """What an effect is known by, the same in every attempt of its visit. `name`: its entity's, here or outside.

    No two effects share one: names may have colons, nodes have none, and only parts may have a slash.
    """
    return f"{name}:{node}:{visit}/{part}" if part else f"{name}:{node}:{visit}"


class _Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type"):
    pass


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Canonical JSON: inline in `json`, or, above `INLINE_BYTES_MAX`, by `digest` with its size in bytes."""

    json: OptionalRaw = None
    digest: Digest | None = None
    size: Count = 0


class StepError(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a step failed. `traceback` shows the pinned source text. Texts are bounded (64 KiB)."""

    code: str  # node_failed, runner_timed_out, routing_failed, value_too_large, …
    message: str
    type: str = ""
    traceback: str = ""
    node: str = ""


class PastStep(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The latest accepted result of a node. `output` is set when `outcome` is completed, else `error`."""

    node: str
    visit: int
    outcome: Outcome
    output: Value | None = None
    error: StepError | None = None


# --- daemon -> runner ----------------------------------------------------------------------------------------


class Launch(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="launch"):
    """Everything a runner needs to go on with a run at its recorded position.

    `visits` counts the entries so far per node (the position's included), and `entries` those before the present entry
    of each mount (`pwf.protocol.mounts`). `observe` is set when an earlier attempt
    of the position's manual effect may or may not have happened: the runner must observe before anything else. When
    the answer is `not_applied`: with `observe_then` None (the attempt was interrupted) the node is run now; else the
    attempt had ended with that outcome, and the runner reports it: Finish(outcome=observe_then, error=observe_error,
    settled="rejected", observed=True). `past` is in attempt order and may name a node twice: its latest completed and
    its latest result.
    """

    run_id: str
    generation: int
    graph: WorkflowGraph
    input: Value
    node: str
    visit: int
    attempt: int  # number of the attempt within the run, 1, 2, 3 …
    tries: int = 1  # number of the try within the visit
    observe: bool = False
    observe_then: Outcome | None = None
    observe_error: StepError | None = None
    outside_name: str | None = (
        None  # what leads `ctx.effect_key` where the run's id was chosen, and may be again
    )
    attempt_started_wall_ms: int = 0
    past: tuple[PastStep, ...] = ()
    visits: dict[str, int] = {}
    entries: Entries = {}
    steps_taken: int = 0
    wants_title: bool = True  # it has none yet
    root: str = ""
    updates: tuple[tuple[str, str], ...] = ()  # kind and key of each current item, where a node may publish
    files: dict[str, Value] = {}  # pinned data files by path relative to root; digest only
    value_bytes_max: int = 64 * 1024 * 1024
    output_bytes_max: int = 4 * 1024 * 1024  # captured stdout and stderr, each
    output_folder: str = ""  # where the runner keeps what its steps print; empty: nowhere
    memory_bytes_max: int | None = None
    stop_grace_ms: int = 1_000  # SIGTERM to SIGKILL
    runs_per_process: int = 1  # that it may have, this one included; more than one under isolate="keep" alone
    marker: str = ""  # what all of the run bears from here on; empty: it is in the environment already
    agent: AgentCommand | None = None  # the run's own, which does the steps of agents
    conversation: str | None = None  # that an earlier attempt of the visit had begun, and that shall go on
    conversation_micros: int = 0  # what earlier attempts were told that it has cost, in millionths
    settings: SettingsCopy | None = None  # as they are now, where the workflow has any
    judges_settings: bool = False  # what is judged is a change of the settings, by their `check=`
    judges_scope: str = ""  # those of this mount
    judge: Value | None = (
        None  # an errand: what was submitted for the node, on which its `validate=` has a word
    )


class StepReply(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="reply"):
    """`go`: committed, go on. `park`: committed, exit now; a later generation goes on. `end`: the run has ended.

    `claim_lost`: this runner is stale. `refused`: the message was wrong (a bug); `error` says why. After anything
    but `go` the runner exits.
    """

    seq: int
    verdict: Literal["go", "park", "end", "claim_lost", "refused"]
    error: str | None = None
    settings: SettingsCopy | None = None  # newer ones than the runner named, for the steps to come


# --- runner -> daemon ----------------------------------------------------------------------------------------


class Finish(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="finish"):
    """The attempt ended. `next` is the node the runner means to enter (None: the run ends, or a retry decides).

    For a manual effect: `settled` says how the effect ended: applied, rejected (`NotApplied`), or unknown. `observed`
    marks an answer of `observe`. `route_error`: completed, but no case matches: the run fails. `printed`: how many
    bytes are kept of what it printed. `survivors`: what outlived it, and was ended.
    """

    seq: Count
    attempt: Count
    outcome: Outcome
    output: Value | None = None
    error: StepError | None = None
    next: str | None = None
    route_error: StepError | None = None
    settled: Literal["applied", "rejected", "unknown"] | None = None
    observed: bool = False
    effect_ref: Annotated[str, msgspec.Meta(max_length=REF_CHARS_MAX)] | None = None
    limited: Limited | None = (
        None  # of a failed step of an agent: it has met a usage limit, and did not fail itself
    )
    settings: Count = 0  # the change of them that the attempt saw
    active_ms: Count = 0
    printed: Count = 0
    survivors: tuple[Survivor, ...] = ()


class Ask(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="ask"):
    """A request of the kind that the node asks (`KINDS`): parks the run until it is answered.

    `schema` is the answer's. `timeout_ms`: how long the request is open, counted from its commit; None: for ever.
    `default`: JSON, the answer when none comes in that time.
    """

    seq: Count
    attempt: Count
    kind: RequestKind
    prompt: Value
    schema: dict[str, Any] | None = None
    subject: Value | None = None  # of a decision: machine data, inline, that nobody is shown
    timeout_ms: int | None = None
    default: str | None = None
    active_ms: Count = 0
    printed: Count = 0
    survivors: tuple[Survivor, ...] = ()


class WaitUntil(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="wait_until"):
    """A durable timer: relative (`delay_ms` from now) or absolute (`wall_ms`); exactly one is set. Parks the run."""

    seq: Count
    attempt: Count
    delay_ms: int | None = None
    wall_ms: int | None = None
    active_ms: Count = 0
    printed: Count = 0
    survivors: tuple[Survivor, ...] = ()


class Titled(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="titled"):
    """The run's title, before its first step. Has no reply."""

    title: str


class Publish(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="publish"):
    """`ctx.publish`: the record replaces the current item of (kind, key). Has no reply; may be coalesced."""

    attempt: Count
    kind: str
    key: str
    data: msgspec.Raw


class AgentReport(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="agent_report"):
    """What an agent has said of its work in this attempt, in sums. Has no reply.

    `afresh`: why its conversation is not the one that the launch had named.
    """

    attempt: Count
    agent: Annotated[str, msgspec.Meta(max_length=64)]
    conversation: Annotated[str, msgspec.Meta(max_length=CONVERSATION_CHARS_MAX)] | None = None
    afresh: Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)] = ""
    input_tokens: Count = 0
    output_tokens: Count = 0
    cost_micros: Count = 0  # millionths of a dollar


class PutChunk(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="put_chunk"):
    """A piece of a large value, sent before the transition that names its digest. `data` is base64 on the wire.

    The `last` chunk is answered by a `StepReply` (go, or refused) under its own `seq`; others have no reply. Uploads
    are numbered apart from transitions (1, 2, 3 …); while one is answered, no transition is under way.
    """

    seq: Count = 0
    digest: Digest
    index: Count
    data: bytes
    last: bool = False
    size: Count = 0


class Judged(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="judged"):
    """The one answer of an errand: whether what was submitted is accepted, else why not. No reply."""

    accepted: bool
    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)] = ""


class Leaving(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="leaving"):
    """The runner's last word of a run. `childless`: the kernel says that no descendant is left (subreaper, no child).

    `stays`: the process is as it was before the run, bears the marker of one that waits, and waits for a further
    `Launch`; answers that still come are of this run, and are skipped. Else it exits, and `not_kept` says what kept it
    from staying, where that was asked for.
    """

    childless: bool = False
    stays: bool = False
    not_kept: Annotated[str, msgspec.Meta(max_length=NOT_KEPT_CHARS_MAX)] = ""


# --- the values socket: blocking request and answer -----------------------------------------------------------


class ReadValue(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="read_value"):
    """Ask for a value of this run by digest."""

    digest: str


class ReadSecret(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="read_secret"):
    """Ask for a secret that the run's workflow declares."""

    name: str


class SecretAnswer(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="secret"):
    """`value`, which nobody may keep; or why it can't be had, in words that don't have it."""

    value: str | None = None
    code: str = ""
    message: str = ""
    hint: str | None = None


class ValueChunk(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="value_chunk"):
    """A verified piece; `missing` when the run has no such value."""

    data: bytes = b""
    last: bool = False
    missing: bool = False


class BeginPart(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="begin_part"):
    """`ctx.effect`: may the part of this name be applied? Its row is committed before the answer leaves.

    `attempt`: the run's. `kind`: what the effect is for people. `observable`: the code has an `observe` for it.
    """

    attempt: Count
    part: PartName
    kind: str
    mode: EffectMode
    request: Value
    observable: bool = False


class PartAnswer(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="part_answer"):
    """What became of a part, or what is to be done for it.

    `apply`: its row says `applying`; apply it now. `observe`: an earlier process left its outcome unknown, by `error`
    or, without one, because it was interrupted. `applied`: it happened, with `output` and `ref`; with `error`, its
    output could not be kept. `unknown`: nobody can tell, and a person is asked. `abandoned`: a person gave it up.
    `conflict`: the key is that of another request, with this `fingerprint`. `settled`: what `SettlePart` said is
    committed. `refused`: nothing was written; `error` says why.
    """

    verdict: Literal["apply", "observe", "applied", "unknown", "abandoned", "conflict", "settled", "refused"]
    output: Value | None = None
    ref: str | None = None
    error: StepError | None = None
    fingerprint: str | None = None


class SettlePart(_Message, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="settle_part"):
    """What became of a part that this process applied or observed.

    `unknown`: it may have happened, and `error` says what went wrong; its row stays open.
    """

    attempt: Count
    part: PartName
    status: Literal["applied", "rejected", "failed", "unknown"]
    output: Value | None = None
    ref: Annotated[str, msgspec.Meta(max_length=REF_CHARS_MAX)] | None = None
    error: StepError | None = None


ToRunner = Launch | StepReply
RunnerCall = ReadValue | ReadSecret | BeginPart | SettlePart | PutChunk
Sequenced = Finish | Ask | WaitUntil
Told = Publish | Titled | AgentReport  # has no reply, and is no step
FromRunner = Finish | Ask | WaitUntil | Told | PutChunk | Judged | Leaving

_encoder = msgspec.json.Encoder()
encode_line = _encoder.encode_lines  # encode_line([message]) -> bytes with newline
to_runner = msgspec.json.Decoder(ToRunner)
from_runner = msgspec.json.Decoder(FromRunner)
call_decoder = msgspec.json.Decoder(RunnerCall)
value_answer = msgspec.json.Decoder(ValueChunk | SecretAnswer | PartAnswer)


def decode_from_runner(line: bytes) -> FromRunner:
    """What a runner sent. Raises `ProtocolError` for anything else, whatever the code of a step wrote there."""
    return _decoded(from_runner, line)


def decode_call(line: bytes) -> RunnerCall:
    """What a runner said on its values socket. Raises as `decode_from_runner`."""
    return _decoded(call_decoder, line)


def _decoded(decoder: msgspec.json.Decoder[M], line: bytes) -> M:
    if is_too_deep(line):
        raise ProtocolError(f"not a runner's message: it is nested more than {NESTING_MAX} deep")
    try:
        if not line.isascii():
            line.decode("utf-8")
        message = decoder.decode(line)
        for raw in _passed_through(message):
            msgspec.json.decode(raw)
        return message
    except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError) as error:
        raise ProtocolError(f"not a runner's message: {error}") from error


def _passed_through(message: FromRunner | RunnerCall) -> Iterator[msgspec.Raw]:
    """The values in a message that decoding it has not read: a number may be too large for any reader."""
    value = message.output if isinstance(message, Finish | SettlePart) else None
    if isinstance(message, Ask):
        value = message.prompt
        if message.subject is not None and message.subject.json is not None:
            yield message.subject.json
    elif isinstance(message, Publish):
        yield message.data
    if value is not None and value.json is not None:
        yield value.json
