"""What a kind of entity brings: all that fence, lease, custody, recovery, history, verify, restore and prune ask of it.

These work by the entity's number and never name a kind. To add one:
1. Give it a table whose primary key references `entities(entity_no)`. Make the entity first (`Tx.create_entity`): its
   number is the row's. Its name is what people know it by; `subject(kind, name)` is also its changed key.
2. Write an `EntityKind` in a module of its own (`run_kind` is the model), and add it to `kinds.KINDS`.
3. `settle`: what becomes of it when the process of a generation has ended. Safe to repeat, under the fence.
   `unattended` finds those that say they have a process while custody has none.
4. `hold_copied`: what a copied or restored database does with those that would go on by themselves.
   `daemon_ended`: what becomes of those that worked when the earlier daemon died by itself, or the machine rebooted;
   how many are suspected of its death.
5. `retention`: which groups have ended, what still needs one of them, and which of its own rows go first. The events,
   the holds and the entity go after them, by the shared code.
6. `rules`: what `state verify` checks across its tables. The test of kinds plants a violation of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from pwf.protocol.runner import StepError
from pwf.protocol.spawn import Identity
from pwf.protocol.survivors import Survivor
from pwf.store.tx import Tx


class RunnerGone(msgspec.Struct, frozen=True, kw_only=True):
    """The process of an entity's generation has ended. `proved`: it and all that it started are dead.

    `timed_out`: we ended it because the attempt's time was over. `stopped`: it was ended with or by the daemon or
    the machine, which counts against nobody. `begun`: it may have been told to begin; else its effect has not
    happened. `died`: it ended by itself in the middle of the attempt, of what `error` says. Else `error` is kept with
    an interrupted attempt. `given_up`: the process, if its row went with the last word, since it was to stay.
    """

    entity_no: int
    kind: str
    name: str
    generation: int
    proved: bool
    timed_out: int | None = None  # the attempt
    stopped: bool = False
    begun: bool = True
    died: bool = False
    error: StepError | None = None
    attempt: int | None = (
        None  # that it was in; how many bytes are kept of what that printed, and what outlived it
    )
    printed: int = 0
    survivors: tuple[Survivor, ...] = ()
    given_up: Identity | None = None


class Rule(NamedTuple):
    """`sql` lists the names of the entities that break it. `fix`: what to type, `{name}` filled in.

    `about` is False where the first column is no entity's name but a text to show. `among`: the rule looks only at runs
    of this status, by an index; "": at rows of which there are few. None: it reads everything.
    """

    sql: str
    message: str
    fix: str
    about: bool = True
    among: str | None = None


@dataclass(frozen=True, kw_only=True)
class Retention:
    """Groups that go together.

    `ended`: (ended_wall_ms, entity_no, group) in order, with :before_ms, :after_ms, :after_no and :limit.
    `group`: (entity_no, name, ended_wall_ms or NULL) of all members of :group.
    `needed`: why one must stay, None where nothing needs it. `remove`: its kind's own rows, before those of any entity.
    """

    ended: str
    group: str
    needed: Callable[[Tx, int, str], str | None]
    remove: Callable[[Tx, int, str], None]


@dataclass(frozen=True, kw_only=True)
class EntityKind:
    """See the module. `table` and `key`: where its rows stand, by the entity's number; None: it has none."""

    name: str
    table: str | None = None
    key: str = "entity_no"
    settle: Callable[[Tx, RunnerGone], None] = lambda tx, gone: None
    unattended: str | None = None  # (entity_no, name, generation)
    hold_copied: Callable[[Tx], None] = lambda tx: None
    daemon_ended: Callable[[Tx, bool, bool], int] = lambda tx, died, rebooted: 0
    retention: Retention | None = None
    rules: Mapping[str, Rule] = field(default_factory=dict)
