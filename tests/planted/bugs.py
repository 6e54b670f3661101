"""The bugs: each is one change of a text that stands once in its file, and the unit tests that should mind it.

A bug is the kind of slip that a change of that line might bring: a comparison that is forgotten, a guard that is
never true, an order that is turned around.
"""

from __future__ import annotations

from tests.planted.action_bugs import ACTIONS
from tests.planted.bug import Bug

FENCE_TESTS = (
    "store/test_tx.py",
    "store/test_batch.py",
    "store/test_transitions.py",
    "store/test_recovery.py",
)
RECEIPT_TESTS = (
    "store/test_effects.py",
    "store/test_effect_words.py",
    "store/test_receipts.py",
    "store/test_control.py",
    "store/test_runs.py",
    "store/test_requests.py",
    "actors/test_first_answer.py",
)
EFFECT_TESTS = (
    "store/test_effects.py",
    "store/test_effect_words.py",
    "store/test_control.py",
    "store/test_runner_end.py",
    "store/test_launch.py",
)
TIME_TESTS = ("store/test_queue.py", "store/test_transitions.py", "store/test_admission_order.py")
CUSTODY_TESTS = (
    "store/test_runner_end.py",
    "store/test_recovery.py",
    "store/test_launch.py",
    "store/test_queue.py",
)
VALUE_TESTS = ("store/test_values.py", "store/test_verify.py")
RETENTION_TESTS = ("store/test_retention.py", "actors/test_pruner.py")
VIEW_TESTS = ("actors/test_views.py",)
LOOP_TESTS = (
    "store/test_loop_share.py",
    "store/test_loop_batches.py",
    "store/test_executor.py",
    "actors/test_mailbox.py",
    "actors/test_store_actor.py",
    "benchmarks/test_slow_disk.py",
)


TX_SQL, QUEUE_SQL, MOVES_SQL = "pwf/store/tx.sql", "pwf/store/queue.sql", "pwf/store/moves.sql"
SUPERVISOR = "pwf/actors/runs/run_supervisor.py"

TOLD = "        self._phase = Phase.TOLD\n"
SENT = "        goes_on = await self._send(process, launch)\n"

#: The end of the first of two statements that take a lease: the one that runs are taken by.
LEASE_TAKEN = """    OR lease_until_awake_ms <= :awake_ms
    OR lease_owner = :owner
    OR lease_owner = :dead_owner)
RETURNING revision, generation

-- name: take_lease_uncounted
"""

BUGS = (
    # --- fence ---
    Bug(
        "fence",
        "the fence forgets the generation",
        TX_SQL,
        "  AND (:generation IS NULL OR generation = :generation)\n",
        "",
        FENCE_TESTS,
    ),
    Bug(
        "fence",
        "the fence forgets the token",
        TX_SQL,
        "  AND (:token IS NULL OR lease_token = :token)\n",
        "",
        FENCE_TESTS,
    ),
    Bug(
        "fence",
        "the fence forgets the expected revision",
        TX_SQL,
        "  AND (:expected_revision IS NULL OR revision = :expected_revision)\n",
        "",
        FENCE_TESTS,
    ),
    Bug(
        "fence",
        "a batch does not look at the epoch",
        "pwf/store/batch.py",
        "        holds = self._holds_claim()\n        try:",
        "        holds = True\n        try:",
        FENCE_TESTS,
    ),
    Bug(
        "fence",
        "a command alone does not look at the epoch",
        "pwf/store/batch.py",
        "answer = self._run_part(job, self._holds_claim())",
        "answer = self._run_part(job, True)",
        FENCE_TESTS,
    ),
    Bug(
        "fence",
        "further writes of a command are not counted",
        "pwf/store/change.py",
        "if self._writes > 1:",
        "if self._writes > 2:",
        FENCE_TESTS,
    ),
    # --- leases ---
    Bug(
        "leases",
        "renewal forgets the token",
        TX_SQL,
        "  AND generation = :generation\n  AND lease_token = :token\n\n-- name: release_lease",
        "  AND generation = :generation\n\n-- name: release_lease",
        FENCE_TESTS,
    ),
    Bug(
        "leases",
        "renewal forgets the generation",
        TX_SQL,
        "  AND generation = :generation\n  AND lease_token = :token\n\n-- name: release_lease",
        "  AND lease_token = :token\n\n-- name: release_lease",
        FENCE_TESTS,
    ),
    Bug(
        "leases",
        "a lease of an earlier boot is not over",
        TX_SQL,
        "    OR lease_boot_id <> :boot_id\n" + LEASE_TAKEN,
        LEASE_TAKEN,
        FENCE_TESTS,
    ),
    Bug(
        "leases",
        "a parked run keeps its lease",
        "pwf/store/place.py",
        "        tx.release_lease(run.run_no)\n",
        "",
        (*FENCE_TESTS, "store/test_launch.py"),
    ),
    # --- receipts ---
    Bug(
        "receipts",
        "receipts are not looked up",
        "pwf/store/once.py",
        "    return None if receipt is None else _again(receipt.outcome, receipt.response, result_type)",
        "    return None",
        RECEIPT_TESTS,
    ),
    Bug(
        "receipts",
        "a refused command keeps what it wrote",
        "pwf/store/once.py",
        "        with tx.savepoint():\n            result, adopted = act()",
        "        result, adopted = act()",
        RECEIPT_TESTS,
    ),
    Bug(
        "receipts",
        "a key may be used for another payload",
        "pwf/store/receipts.py",
        "    if payload_digest != key.payload_digest:",
        "    if False:",
        RECEIPT_TESTS,
    ),
    Bug(
        "receipts",
        "a repeat about a removed run is a new command",
        "pwf/actors/operations/dispatch.py",
        "        if asked.scope_key is None or outcome_of",
        "        if True or outcome_of",
        RECEIPT_TESTS,
    ),
    # --- effects ---
    Bug(
        "effects",
        "an idempotent effect of a cancelled run did not happen",
        MOVES_SQL,
        "'ambiguous' ELSE 'failed' END",
        "'ambiguous' ELSE 'cancelled' END",
        EFFECT_TESTS,
    ),
    Bug(
        "effects",
        "an unknown manual effect is taken as rejected",
        "pwf/store/runners.py",
        'moves.settle_effect(tx, run, "ambiguous")',
        'moves.settle_effect(tx, run, "rejected")',
        EFFECT_TESTS,
    ),
    Bug(
        "effects",
        "an effect that is begun anew is not counted",
        MOVES_SQL,
        "generation = :generation, attempts = attempts + 1,",
        "generation = :generation,",
        EFFECT_TESTS,
    ),
    Bug(
        "effects",
        "an effect that happened while its step failed is tried again",
        "pwf/store/transitions.py",
        'spent = message.settled == "applied" and message.outcome != "completed"',
        "spent = False",
        EFFECT_TESTS,
    ),
    Bug(
        "effects",
        "a runner counts as told after its launch was sent",
        SUPERVISOR,
        TOLD + SENT,
        SENT + TOLD,
        ("actors/test_run_supervisor.py",),
    ),
    Bug(
        "effects",
        "a person's late word settles a later attempt",
        "pwf/store/effects.py",
        "    with changing(tx, run, expected_revision=command.expected_revision):",
        "    with changing(tx, run):",
        EFFECT_TESTS,
    ),
    Bug(
        "effects",
        "what a person gave up is tried again",
        "pwf/store/effects.py",
        """    then = moves.Follow(next=None if way is None else way.target)
    _end_attempt""",
        """    then = moves.follow(run, graph.node(run.node), "failed", None)
    _end_attempt""",
        EFFECT_TESTS,
    ),
    Bug(
        "effects",
        "a person's note outlives what it was said of",
        MOVES_SQL,
        "settled_wall_ms = NULL, settled_by = NULL, note = NULL, ref",
        "settled_wall_ms = NULL, ref",
        EFFECT_TESTS,
    ),
    # --- timers ---
    Bug(
        "timers",
        "a relative wait is due at once",
        "pwf/store/place.py",
        "        return run.due_elapsed_ms > tx.now.elapsed_ms\n",
        "        return False\n",
        TIME_TESTS,
    ),
    Bug(
        "timers",
        "an absolute time comes a second early",
        QUEUE_SQL,
        "q.due_wall_ms <= :wall_ms",
        "q.due_wall_ms <= :wall_ms + 1000",
        TIME_TESTS,
    ),
    Bug(
        "timers",
        "after a reboot relative times are still those of the old boot",
        QUEUE_SQL,
        "UPDATE run_queue SET due_boot_id = NULL, due_elapsed_ms = NULL\n",
        "UPDATE run_queue SET due_boot_id = NULL\n",
        TIME_TESTS,
    ),
    Bug(
        "timers",
        "a back-off does not grow",
        "pwf/store/moves.py",
        "node.retry.delay_ms(failures)",
        "node.retry.delay_ms(1)",
        TIME_TESTS,
    ),
    Bug(
        "timers",
        "a run that waited under a pause goes by the clock of an old boot",
        "pwf/store/place.py",
        "    if run.due_elapsed_ms is not None and run.due_boot_id != tx.now.boot_id:",
        "    if run.due_elapsed_ms is not None and run.due_boot_id is None:",
        TIME_TESTS,
    ),
    # --- custody ---
    Bug(
        "custody",
        "a run is admitted before its old process is proved dead",
        QUEUE_SQL,
        " AND NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = q.run_no)",
        "",
        CUSTODY_TESTS,
    ),
    Bug(
        "custody",
        "custody ends without a proof",
        "pwf/store/custody.py",
        "    if command.proved:\n",
        "    if True:\n",
        CUSTODY_TESTS,
    ),
    Bug(
        "scheduler",
        "the end of a supervisor is forgotten when the inbox is full",
        "pwf/actors/base/changes.py",
        "        self._woken[who] = None\n        self._wake()\n",
        "        if self._wake():\n            self._woken[who] = None\n",
        ("actors/test_scheduler_messages.py",),
    ),
    Bug(
        "listener",
        "a request that an idle task takes does not wait for the one before",
        "pwf/actors/door/connection.py",
        "            self._idle.pop().give(work)\n",
        "            self._idle.pop().give(work._replace(before=None))\n",
        ("actors/test_listener.py",),
    ),
    Bug(
        "custody",
        "one look at many does not look for their markers",
        "pwf/actors/processes/custody.py",
        "marker not in markers and runner.pid not in pids",
        "runner.pid not in pids",
        ("actors/test_custody.py",),
    ),
    Bug(
        "custody",
        "the rows of runners are read without the fence",
        "pwf/actors/runs/recovery.py",
        "self._store.write(standing_stretch, after)",
        "self._store.read(standing_stretch, after)",
        ("actors/test_recovery_loop.py",),
    ),
    Bug(
        "custody",
        "an outcome is committed before the runner is proved dead",
        "pwf/store/runner_end.py",
        "    elif (timed_out or died) and command.proved:",
        "    elif timed_out or died:",
        CUSTODY_TESTS,
    ),
    Bug(
        "custody",
        "the process of a launch is not stored",
        "pwf/store/launch.py",
        "                runner_is_live(tx, run.run_no, run.generation, command.identity)\n",
        "",
        CUSTODY_TESTS,
    ),
    Bug(
        "custody",
        "recovery takes a run that is just being admitted",
        "pwf/actors/runs/recovery.py",
        "        known |= now.live | self._under_way",
        "        known |= self._under_way",
        ("actors/test_offers.py", "actors/test_recovery_loop.py", "actors/test_scheduler.py"),
    ),
    Bug(
        "custody",
        "a pid that is used again is taken for the runner",
        "pwf/actors/processes/custody.py",
        "        is_runner = identity.is_same(runner)\n",
        "        is_runner = identity.pid == runner.pid\n",
        ("actors/test_custody.py",),
    ),
    # --- values ---
    Bug(
        "values",
        "a runner names a value that it has not uploaded",
        "pwf/store/values.py",
        "    if size is None or tx.one(Q.is_held, held) is None:",
        "    if size is None:",
        VALUE_TESTS,
    ),
    Bug(
        "values",
        "an output is no reason to keep a value",
        "pwf/store/values.sql",
        "    OR EXISTS (SELECT 1 FROM attempts WHERE output_digest = :digest)\n",
        "",
        VALUE_TESTS,
    ),
    Bug(
        "values",
        "an uploaded value is not checked as a whole",
        "pwf/store/values.py",
        "    if hasher.hexdigest() != command.digest:",
        "    if False:",
        VALUE_TESTS,
    ),
    Bug(
        "values",
        "a damaged chunk is read",
        "pwf/store/values.py",
        "    if row is None or zlib.crc32(row[0]) != row[1]:",
        "    if row is None:",
        VALUE_TESTS,
    ),
    # --- retention ---
    Bug(
        "retention",
        "a run with an unsettled effect goes",
        "pwf/store/run_kind.py",
        '    return None if unsettled is None else "an effect is unsettled"',
        "    return None",
        RETENTION_TESTS,
    ),
    Bug(
        "retention",
        "a tree goes of which one run has ended",
        "pwf/store/retention.py",
        "    return all(\n        member.ended_ms is not None",
        "    return any(\n        member.ended_ms is not None",
        RETENTION_TESTS,
    ),
    Bug(
        "retention",
        "a run goes whose process is not proved dead",
        "pwf/store/retention.py",
        '        if tx.one(Q.process_unproved, {"entity_no": member.entity_no}) is not None:',
        "        if False:",
        RETENTION_TESTS,
    ),
    Bug(
        "retention",
        "retention goes by the beginning of a run",
        "pwf/store/run_kind.sql",
        "WHERE ended_wall_ms IS NOT NULL AND ended_wall_ms < :before_ms",
        "WHERE ended_wall_ms IS NOT NULL AND created_wall_ms < :before_ms",
        RETENTION_TESTS,
    ),
    # --- the loop's share of a batch ---
    Bug(
        "loop",
        "a batch of the loop is acknowledged before its commit",
        "pwf/store/loop_share.py",
        "and self.pace.in_loop and self._commit(writer):",
        "and (self.pace.in_loop or self._commit(writer)):",
        LOOP_TESTS,
    ),
    Bug(
        "loop",
        "a commit that failed in the loop is acknowledged",
        "pwf/store/batch.py",
        "            self._uncommitted = error\n            return False\n",
        "            self._uncommitted = error\n            return True\n",
        LOOP_TESTS,
    ),
    Bug(
        "loop",
        "a commit that failed in the loop is tried again in the writer's thread",
        "pwf/store/batch.py",
        "        return self.is_open and self._uncommitted is None\n",
        "        return self.is_open\n",
        LOOP_TESTS,
    ),
    Bug(
        "loop",
        "a batch runs in the loop while the writer's thread has the connection",
        "pwf/store/executor.py",
        "        if self._write_thread.is_idle:\n",
        "        if self._write_thread is not None:\n",
        LOOP_TESTS,
    ),
    Bug(
        "loop",
        "the loop waits for a foreign lock",
        "pwf/store/batch.py",
        "        self._busy.waits = False\n        self.tx.is_hurried = True\n",
        "        self.tx.is_hurried = True\n",
        LOOP_TESTS,
    ),
    Bug(
        "loop",
        "on a slow disk a renewal is let into the store's full inbox one batch too late, again and again",
        "pwf/actors/base/mailbox.py",
        "        while self._senders and len(items) < self._bound:\n",
        "        if self._senders and len(items) < self._bound:\n",
        LOOP_TESTS,
    ),
    Bug(
        "loop",
        "batch follows batch in the loop's thread, and nobody else has a turn",
        "pwf/actors/base/store_actor.py",
        "        await trio.lowlevel.checkpoint()\n        owed",
        "        owed",
        LOOP_TESTS,
    ),
    Bug(
        "loop",
        "a disk that has become slow is never left",
        "pwf/store/loop_share.py",
        "or sum(self._took) > HELD_S_MAX:",
        "or min(self._took) > HELD_S_MAX:",
        LOOP_TESTS,
    ),
    *ACTIONS,
    # --- views ---
    Bug(
        "views",
        "what was read before a change is shown as what is",
        "pwf/actors/door/views.py",
        "            self._shown, self._bytes = has, len(data)\n",
        "            self._shown, self._bytes = self._changes, len(data)\n",
        VIEW_TESTS,
    ),
    Bug(
        "views",
        "a change is not noticed",
        "pwf/actors/door/views.py",
        "        self._changes += 1\n",
        "        self._changes += 0\n",
        VIEW_TESTS,
    ),
    Bug(
        "views",
        "the next patch is against a state that the client does not have",
        "pwf/actors/door/views.py",
        "        self._sent = document\n",
        "        self._sent = self._sent or document\n",
        VIEW_TESTS,
    ),
)
