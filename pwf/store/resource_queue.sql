-- The queue of reconciles: wake-ups, due times, admission.

-- name: fire_by_wall
-- Rows of an earlier boot whose time has come.
UPDATE reconcile_queue SET state = 'ready' WHERE resource_no IN (SELECT resource_no FROM reconcile_queue
  WHERE state = 'later' AND due_elapsed_ms IS NULL AND due_wall_ms <= :wall_ms ORDER BY due_wall_ms LIMIT :limit)

-- name: fire_by_elapsed
-- Rows of this boot whose time has come.
UPDATE reconcile_queue SET state = 'ready' WHERE resource_no IN (SELECT resource_no FROM reconcile_queue
  WHERE state = 'later' AND due_elapsed_ms IS NOT NULL AND due_elapsed_ms <= :elapsed_ms
  ORDER BY due_elapsed_ms LIMIT :limit)

-- name: first_ready
-- Since when the first has been due: by the wall clock, and within this boot by the clock that counts sleep.
SELECT q.due_wall_ms, q.due_elapsed_ms, q.due_boot_id FROM reconcile_queue q
WHERE q.state = 'ready' AND NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = q.resource_no)
ORDER BY q.due_wall_ms LIMIT 1

-- name: ready
-- The next ones; one whose old processes are not proved dead waits for that.
SELECT q.resource_no FROM reconcile_queue q
WHERE q.state = 'ready' AND NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = q.resource_no)
ORDER BY q.due_wall_ms LIMIT :limit

-- name: make_live
-- It is being reconciled.
UPDATE reconcile_queue SET state = 'live', woken = 0 WHERE resource_no = :resource_no AND state = 'ready'

-- name: admitted
-- What its process is made from.
SELECT uid, definition_id, environment_id FROM resources WHERE resource_no = :resource_no

-- name: rebase
-- After a reboot, relative times go by the wall clock.
UPDATE reconcile_queue SET due_boot_id = NULL, due_elapsed_ms = NULL
WHERE state = 'later' AND due_elapsed_ms IS NOT NULL AND due_boot_id <> :boot_id
