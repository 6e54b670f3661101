-- What recovery, restore and retention ask of managed resources.

-- name: unattended
-- Resources that are being reconciled while no process stands for them.
SELECT q.resource_no, r.uid, e.generation FROM reconcile_queue q JOIN resources r ON r.resource_no = q.resource_no
JOIN entities e ON e.entity_no = q.resource_no
WHERE q.state = 'live' AND NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = q.resource_no)

-- name: not_gone
-- Resources that would go on by themselves, or when somebody resumes them.
SELECT resource_no FROM resources
WHERE gone_wall_ms IS NULL AND (hold IS NULL OR hold NOT IN ('effect_ambiguous', 'broken', 'restored'))

-- name: ended_before
-- Resources that are gone, in the order of their end, from a place on.
SELECT gone_wall_ms, resource_no, resource_no FROM resources
WHERE gone_wall_ms IS NOT NULL AND gone_wall_ms < :before_ms AND (gone_wall_ms, resource_no) > (:after_ms, :after_no)
ORDER BY gone_wall_ms, resource_no LIMIT :limit

-- name: itself
-- Each is a group of its own.
SELECT resource_no, uid, gone_wall_ms FROM resources WHERE resource_no = :group

-- name: child
-- A run that it started is still there.
SELECT 1 FROM runs WHERE called_by = :resource_no LIMIT 1

-- name: drop_effects
-- The ledger's rows: all are settled.
DELETE FROM effects WHERE entity_no = :resource_no

-- name: drop_children
-- What was left of its runs: nobody asks for them any more.
DELETE FROM former_children WHERE resource_no = :resource_no

-- name: drop_resource
-- The resource itself, if it is gone.
DELETE FROM resources WHERE resource_no = :resource_no AND gone_wall_ms IS NOT NULL
