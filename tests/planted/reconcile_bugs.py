"""Bugs in how managed resources are reconciled: one process at a time, results that count, wake-ups."""

from __future__ import annotations

from tests.planted.bug import Bug

RESOURCE_TESTS = (
    "store/test_resources.py",
    "store/test_reconcile_admission.py",
    "store/test_resource_effects.py",
    "store/test_resource_watch.py",
    "actors/test_reconcile_supervisor.py",
)
SUPERVISOR = "pwf/actors/resources/resource_manager_supervisor.py"
RESULT, RECONCILES = "pwf/store/reconcile_result.py", "pwf/store/reconciles.py"
QUEUE, QUEUE_SQL = "pwf/store/resource_queue.py", "pwf/store/resource_queue.sql"

READY = (
    "WHERE q.state = 'ready' AND NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = q.resource_no)\n"
)
LIMITED = "ORDER BY q.due_wall_ms LIMIT :limit\n"

RECONCILE_BUGS = (
    Bug(
        "reconciles",
        "a reconcile is finished without a proof that its process is dead",
        SUPERVISOR,
        "            proved = await self._end(self._process)\n",
        "            proved = self._result is not None or self._late or await self._end(self._process)\n",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "one whose old process is not proved dead is admitted",
        QUEUE_SQL,
        READY + LIMITED,
        "WHERE q.state = 'ready'\n" + LIMITED,
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "one whose process is not proved dead is put back",
        "pwf/store/resource_kind.py",
        "    if not gone.proved:\n",
        "    if not gone.proved and gone.given_up:\n",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "one that is held for its process goes on while that lives",
        "pwf/store/resources.py",
        '    if resource.hold == "process_unreaped" and has_runner(tx, resource.resource_no):\n',
        '    if resource.hold == "process_unreaped" and resource.is_live:\n',
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "a process begins before its custody is stored",
        RECONCILES,
        "    runner_is_live(tx, resource.resource_no, resource.generation, command.identity)\n",
        "",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "whoever has lost the lease finishes all the same",
        "pwf/store/resource_state.py",
        "    if not holds_lease(tx, fence.entity_no, fence.generation, fence.token):\n",
        "    if not fence.token:\n",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "a result for an older generation counts",
        RESULT,
        '    if told != resource.spec_generation and result.outcome != "failed":\n',
        '    if told > resource.spec_generation and result.outcome != "failed":\n',
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "the second result of a process takes the place of the first",
        SUPERVISOR,
        "        elif self._result is None:  # the first counts\n            self._result = message\n",
        "        else:\n            self._result = message\n",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "a wake-up during a reconcile is dropped",
        "pwf/store/resource_wake.sql",
        "SET woken = max(woken, :woken), reasons = :reasons",
        "SET woken = 0 * :woken, reasons = :reasons",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "what has woken it meanwhile is forgotten when it settles",
        RESULT,
        "    woken, resource.queue_state = bool(resource.woken), None\n",
        "    woken, resource.queue_state = bool(resource.woken) and delay_ms is not None, None\n",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "a failure is not tried again",
        RESULT,
        '    _leave(tx, resource, backoff_ms(tx, resource.failures), ["retry"])\n',
        '    _leave(tx, resource, None, ["retry"])\n',
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "what is resumed is not due",
        "pwf/store/resources.py",
        '        enqueue(tx, resource, ["resumed"])\n',
        "        pass\n",
        RESOURCE_TESTS,
    ),
    Bug(
        "reconciles",
        "its lease is not renewed",
        SUPERVISOR,
        "            if not await self._write(renew_reconcile, RenewReconcile(fence=self._fence)):\n"
        "                self._inbox.put_now(Stop())\n",
        "            self._inbox.put_now(Stop())\n",
        RESOURCE_TESTS,
    ),
)
