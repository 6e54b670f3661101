-- Wake-ups of managed resources.

-- name: wakeable
-- What a wake-up looks at; nothing of a resource that is gone.
SELECT r.hold IS NOT NULL OR r.paused, r.failures, q.state, q.reasons, r.uid
FROM resources r LEFT JOIN reconcile_queue q ON q.resource_no = r.resource_no
WHERE r.resource_no = :resource_no AND r.gone_wall_ms IS NULL

-- name: wake_live
-- It is being reconciled: once more after that.
UPDATE reconcile_queue SET woken = max(woken, :woken), reasons = :reasons WHERE resource_no = :resource_no

-- name: add_reasons
-- It is due already, or later, and stays so: why it was to be woken is told then.
UPDATE reconcile_queue SET reasons = :reasons WHERE resource_no = :resource_no

-- name: enqueue
-- Due now or later.
INSERT INTO reconcile_queue(resource_no, state, due_wall_ms, due_elapsed_ms, due_boot_id, reasons)
VALUES (:resource_no, :state, :due_wall_ms, :due_elapsed_ms, :due_boot_id, :reasons)
ON CONFLICT (resource_no) DO UPDATE SET state = excluded.state, due_wall_ms = excluded.due_wall_ms,
  due_elapsed_ms = excluded.due_elapsed_ms, due_boot_id = excluded.due_boot_id, reasons = excluded.reasons, woken = 0

-- name: dequeue
-- Nothing is due.
DELETE FROM reconcile_queue WHERE resource_no = :resource_no
