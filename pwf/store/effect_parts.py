"""Effects that code makes in mid-step: begun and settled one by one, each under a key that the code names, the part.

Owns: how the ledger's row of a part changes. Promises: a part is `applying` on disk before anybody may apply it; one
that happened is never begun again; the same part with another request is a conflict; one whose outcome is unknown is
observed, or left to a person. Knows no run: any entity that has a lease may have parts, within its own fence.

A run's parts belong to the node and the visit of its position. A managed resource keeps those of its
`effects.ensure(key, kind, request, observe, apply)` in the same ledger: with `Occasion(entity_no=…, generation=…,
node="reconcile", visit=1)`, and its key as the part. Its supervisor answers what the reconcile's process says, each
message in one command that passes the fence and notes an event:
1. `BeginPart`: `look_at_part`, then `begin_part` if that says `apply`. Once that is committed, the process does what
   the answer says.
2. `SettlePart`: `settle_part`. After an observer's `not_applied()` this says `rejected`, and 1 comes again.
3. The process has ended: `unknown_parts` lists what it may have left open. With an observer it is observed where the
   next reconcile asks for it. Without one, and where an observer can't tell, `leave_ambiguous` gives all to a person.
4. A person's word: `settle_by_word`, or `observe_again`.
The effect is then known as `effect_key(NAME, "reconcile", 1, key)`, so the entity's name has no slash. At the
entity's end the query `close_effects` of `moves` closes what is open.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from pwf.errors import InvalidValue
from pwf.protocol.runner import BeginPart, PartAnswer, SettlePart, StepError, Value
from pwf.store import moves
from pwf.store.queries import load_queries
from pwf.store.state import encode
from pwf.store.tx import Tx
from pwf.store.values import claim_value, value_of
from pwf.values import digest

Q = load_queries(__file__)

PARTS_MAX = 1_000  # of one visit
STATUS_OF = {"happened": "applied", "not_happened": "rejected", "give_up": "abandoned"}


class Occasion(msgspec.Struct, frozen=True, kw_only=True):
    """Whose effects, and of what: the entity with the generation of its process, a node and its visit."""

    entity_no: int
    generation: int
    node: str
    visit: int
    parts_max: int = PARTS_MAX

    @property
    def place(self) -> dict[str, object]:
        """As the queries name it."""
        return {"entity_no": self.entity_no, "node": self.node, "visit": self.visit}


class OpenPart(NamedTuple):
    """A manual part that may have happened. `observable`: the code that began it can observe it."""

    part: str
    observable: bool
    status: str
    generation: int


class _Row(NamedTuple):
    mode: str
    observable: int
    status: str
    generation: int
    fingerprint: str
    output: bytes | None
    output_digest: str | None
    output_size: int | None
    ref: str | None
    error: bytes | None


def begin_part(tx: Tx, occasion: Occasion, call: BeginPart) -> PartAnswer:
    """Have its row say `applying`, where `look_at_part` has just said `apply`. `refused` has written nothing.

    The caller has passed the entity's fence.
    """
    key = {**occasion.place, "part": call.part}
    if tx.run(Q.begin_again, {**key, **_begun(occasion, call)}):
        return PartAnswer(verdict="apply")
    return _add(tx, occasion, call, key)


def look_at_part(tx: Tx, occasion: Occasion, call: BeginPart) -> PartAnswer:
    """What is to be done for a part: see `PartAnswer`. Changes nothing: after `apply`, `begin_part` begins it."""
    found = tx.one(Q.part, {**occasion.place, "part": call.part})
    if found is None:
        count = tx.one(Q.count_parts, occasion.place)
        if count is not None and count[0] >= occasion.parts_max:
            return _refused(f"it has {count[0]:,} effects already, as many as there may be")
        return PartAnswer(verdict="apply")
    row = _Row(*found)
    if row.fingerprint != fingerprint_of(call.request):
        return PartAnswer(verdict="conflict", fingerprint=row.fingerprint)
    if row.status == "applied":
        output = value_of(row.output, row.output_digest, row.output_size)
        return PartAnswer(verdict="applied", output=output, ref=row.ref, error=moves.decode_error(row.error))
    if row.status == "abandoned":
        return PartAnswer(verdict="abandoned")
    if row.status == "ambiguous":
        return PartAnswer(verdict="unknown", error=moves.decode_error(row.error))
    if row.status == "applying" and row.mode == "manual":
        verdict = "unknown" if row.generation == occasion.generation or not call.observable else "observe"
        return PartAnswer(verdict=verdict, error=moves.decode_error(row.error))  # type: ignore[arg-type]
    return PartAnswer(verdict="apply")


def settle_part(tx: Tx, occasion: Occasion, call: SettlePart) -> PartAnswer:
    """What the process that applied or observed a part says of it. `refused` has written nothing."""
    key = {**occasion.place, "part": call.part}
    found = tx.one(Q.part, key)
    row = None if found is None else _Row(*found)
    allowed = {"applied", "rejected", "unknown"} if row and row.mode == "manual" else {"applied", "failed"}
    if row is None or row.status != "applying" or call.status not in allowed:
        stands = "not there" if row is None else f"{row.mode}, {row.status}"
        return _refused(f"effect {call.part!r} is {stands}, and can not become {call.status}")
    error = None if call.error is None else encode(call.error)
    if call.status == "unknown":
        tx.run(Q.note_error, {**key, "error": error})
        return PartAnswer(verdict="settled")
    try:
        output = _kept(tx, occasion, call.output) if call.status == "applied" else moves.NOTHING
    except InvalidValue as fault:
        return _refused(fault.message)
    facts = {
        "status": call.status,
        "output": output.inline,
        "output_crc32": output.crc32,
        "output_digest": output.digest,
        "ref": call.ref,
        "error": error,
        "now": tx.now.wall_ms,
    }
    tx.run(Q.settle_part, {**key, **facts})
    return PartAnswer(verdict="settled")


def unknown_parts(tx: Tx, occasion: Occasion) -> list[OpenPart]:
    """The manual parts of the visit that may have happened."""
    return [OpenPart(part, bool(seen), *rest) for part, seen, *rest in tx.all(Q.open_manual, occasion.place)]


def abandoned_parts(tx: Tx, occasion: Occasion) -> list[tuple[str, str | None]]:
    """Those of the visit that a person gave up, each with what that person said of it."""
    return [(part, note) for part, note in tx.all(Q.abandoned, occasion.place)]


def note_end(tx: Tx, occasion: Occasion, error: StepError | None) -> None:
    """The try of this generation has ended with an error: what it left open is settled so far as that goes.

    What may be run again has failed; of the others it is known now why their outcome is unknown.
    """
    if error is not None:
        facts = {"generation": occasion.generation, "error": encode(error)}
        tx.run(Q.note_end, {**occasion.place, **facts})
    tx.run(Q.close_idempotent, {**occasion.place, "now": tx.now.wall_ms})


def leave_ambiguous(tx: Tx, occasion: Occasion) -> int:
    """Nobody can tell about the open manual parts of the visit: a person is asked. How many became so."""
    return tx.run(Q.leave_ambiguous, occasion.place)


def listed(keys: list[str], named: int) -> str:
    """Keys in a message: so many of them by name, and how many more there are."""
    return ", ".join(keys[:named]) + (f" and {len(keys) - named} more" if len(keys) > named else "")


class Word(msgspec.Struct, frozen=True, kw_only=True):
    """A person's, on one effect: it happened (with canonical `output` and `ref`), did not happen, or is given up."""

    verdict: Literal["happened", "not_happened", "give_up"]
    output: bytes | None = None
    ref: str | None = None
    said_by: str
    note: str | None = None


def settle_by_word(tx: Tx, place: dict[str, object], word: Word) -> bool:
    """Settle an ambiguous effect. False: it is none, and nothing was written. `place`: entity, node, visit, part."""
    output = moves.stored(tx, word.output) if word.verdict == "happened" and place["part"] else moves.NOTHING
    facts = {
        "status": STATUS_OF[word.verdict],
        "output": output.inline,
        "output_crc32": output.crc32,
        "output_digest": output.digest,
        "ref": word.ref,
        "settled_by": word.said_by,
        "note": word.note,
        "now": tx.now.wall_ms,
    }
    return tx.run(Q.settle_by_word, {**place, **facts}) > 0


def observe_again(tx: Tx, place: dict[str, object]) -> bool:
    """Have an ambiguous part observed where its code is reached next. False: it is none, or has no observer."""
    return tx.run(Q.observe_again, place) > 0


def fingerprint_of(request: Value) -> str:
    """SHA-256 of the canonical request."""
    if request.digest is not None:
        return request.digest
    return digest(bytes(request.json or b"null"))


def _add(tx: Tx, occasion: Occasion, call: BeginPart, key: dict[str, object]) -> PartAnswer:
    try:
        request = _kept(tx, occasion, call.request)
    except InvalidValue as error:
        return _refused(error.message)
    facts = {
        "request": request.inline,
        "request_crc32": request.crc32,
        "request_digest": request.digest,
        "fingerprint": fingerprint_of(call.request),
        "now": tx.now.wall_ms,
    }
    tx.run(Q.add_part, {**key, **_begun(occasion, call), **facts})
    return PartAnswer(verdict="apply")


def _begun(occasion: Occasion, call: BeginPart) -> dict[str, object]:
    return {
        "type": call.kind,
        "mode": call.mode,
        "observable": call.observable,
        "generation": occasion.generation,
    }


def _kept(tx: Tx, occasion: Occasion, value: Value | None) -> moves.Stored:
    """A value as its columns hold it. Raises `InvalidValue` where it was not uploaded."""
    if value is None or value.digest is None:
        return moves.Stored(inline=b"null" if value is None or value.json is None else bytes(value.json))
    claim_value(tx, value.digest, occasion.entity_no, occasion.generation)
    return moves.Stored(digest=value.digest)


def _refused(message: str) -> PartAnswer:
    return PartAnswer(verdict="refused", error=StepError(code="protocol_rejected", message=message))
