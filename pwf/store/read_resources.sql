-- Managed resources, read for people.

-- name: definition
-- The manager's file.
SELECT path FROM definitions WHERE definition_id = :definition_id

-- name: newest_alive
-- A page of the living, newest first.
SELECT resource_no, manager, root FROM resources WHERE gone_wall_ms IS NULL AND resource_no < :before
ORDER BY resource_no DESC LIMIT :limit

-- name: newest
-- A page of all, newest first.
SELECT resource_no, manager, root FROM resources WHERE resource_no < :before ORDER BY resource_no DESC LIMIT :limit

-- name: refers
-- Whether a value belongs to the resource.
SELECT 1 FROM resources WHERE resource_no = :resource_no AND :digest IN (spec_digest, status_digest)
UNION ALL SELECT 1 FROM runs WHERE called_by = :resource_no AND output_digest = :digest
UNION ALL SELECT 1 FROM former_children WHERE resource_no = :resource_no AND output_digest = :digest
UNION ALL SELECT 1 FROM effects WHERE entity_no = :resource_no AND :digest IN (request_digest, output_digest) LIMIT 1

-- name: child
-- The newest child that has not ended.
SELECT run_id FROM runs WHERE called_by = :resource_no AND ended_wall_ms IS NULL ORDER BY run_no DESC LIMIT 1

-- name: counts
-- How many are alive, due now, being reconciled, and kept back.
SELECT (SELECT count(*) FROM resources WHERE gone_wall_ms IS NULL),
  (SELECT count(*) FROM reconcile_queue WHERE state = 'ready'),
  (SELECT count(*) FROM reconcile_queue WHERE state = 'live'),
  (SELECT count(*) FROM resources WHERE (hold IS NOT NULL OR paused = 1) AND gone_wall_ms IS NULL)

-- name: by_manager
-- The living of each manager in a project.
SELECT manager, count(*) FROM resources WHERE root = :root AND gone_wall_ms IS NULL GROUP BY manager
