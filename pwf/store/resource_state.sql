-- Managed resources: loaded and saved.

-- name: load
-- Everything that a command may look at, with the entity's counters and the row in the queue.
SELECT r.resource_no, r.uid, r.root, r.manager, r.key, r.definition_id, r.environment_id, r.paused, r.hold, r.hold_detail,
  r.spec, r.spec_digest, r.status, r.status_digest, r.conditions, r.spec_generation, r.observed_generation, r.error,
  r.failures, r.requeues, r.reconciles, r.reconciled_wall_ms, r.deleting_wall_ms, r.children, r.created_wall_ms,
  r.gone_wall_ms, r.watch, r.events_from, r.trim_wall_ms, e.revision, e.generation, e.lease_token,
  q.state, q.due_wall_ms, q.due_elapsed_ms, q.due_boot_id, q.reasons, q.woken
FROM resources r JOIN entities e ON e.entity_no = r.resource_no LEFT JOIN reconcile_queue q ON q.resource_no = r.resource_no
WHERE r.resource_no = :resource_no

-- name: to_trim
-- It has more events than must be kept: from when the first is.
UPDATE resources SET trim_wall_ms =
  (SELECT at_wall_ms FROM events WHERE entity_no = :resource_no AND revision = :events_from)
WHERE resource_no = :resource_no

-- name: finalizers
-- What must be undone before it may go, in the order that its manager named.
SELECT name FROM finalizers WHERE resource_no = :resource_no ORDER BY place

-- name: drop_finalizers
-- None are left, or others follow.
DELETE FROM finalizers WHERE resource_no = :resource_no

-- name: add_finalizer
-- One that its manager named.
INSERT INTO finalizers(resource_no, place, name) VALUES (:resource_no, :place, :name)

-- name: save
-- All that can change.
UPDATE resources SET definition_id = :definition_id, environment_id = :environment_id, paused = :paused, hold = :hold,
  hold_detail = :hold_detail, spec = :spec, spec_crc32 = :spec_crc32, spec_digest = :spec_digest, status = :status,
  status_crc32 = :status_crc32, status_digest = :status_digest, conditions = :conditions,
  spec_generation = :spec_generation, observed_generation = :observed_generation, error = :error, failures = :failures,
  requeues = :requeues, reconciles = :reconciles, reconciled_wall_ms = :reconciled_wall_ms,
  deleting_wall_ms = :deleting_wall_ms, children = :children, gone_wall_ms = :gone_wall_ms,
  watch = :watch
WHERE resource_no = :resource_no
