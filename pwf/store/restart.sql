-- Restarts: what one takes from the run that it starts anew, and what forbids it.

-- name: facts
-- What a restart takes from the old run.
SELECT r.workflow, r.input, r.input_digest, r.status, r.restart_root, r.restart_no, r.priority, d.path, d.root,
  e.revision, v.body, r.max_steps
FROM runs r JOIN definitions d ON d.definition_id = r.definition_id
JOIN entities e ON e.entity_no = r.run_no JOIN environments v ON v.environment_id = r.environment_id
WHERE r.run_id = :run_id

-- name: unsettled
-- Effects of a run that are not settled.
SELECT node, visit, part FROM effects
WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND status IN ('applying', 'ambiguous')

-- name: happened
-- Effects of a run that happened or were given up, and that are no harmless ones to make again; one more than are named.
SELECT node, visit, part FROM effects
WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND status IN ('applied', 'abandoned')
  AND mode <> 'idempotent'
ORDER BY reserved_wall_ms, node, visit, part LIMIT :limit

-- name: made
-- The run that an ended run was restarted as.
SELECT r.run_id, r.status, r.hold, r.reason, r.restart_root, r.restart_no, e.revision
FROM runs r JOIN entities e ON e.entity_no = r.run_no WHERE r.restarted_from = :run_id

-- name: newest
-- The last run of a chain of restarts, however long it is.
SELECT run_id, status FROM runs WHERE restart_root = :restart_root ORDER BY restart_no DESC LIMIT 1
