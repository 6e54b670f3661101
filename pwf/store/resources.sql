-- Managed resources: made and found.

-- name: alive
-- The living one of a name in a project.
SELECT resource_no FROM resources WHERE manager = :manager AND key = :key AND root = :root AND gone_wall_ms IS NULL

-- name: alive_anywhere
-- Those of a name in every project.
SELECT resource_no, uid, root FROM resources WHERE manager = :manager AND key = :key AND gone_wall_ms IS NULL
ORDER BY root LIMIT :limit

-- name: by_uid
-- Those whose uid begins so.
SELECT resource_no, uid FROM resources WHERE uid >= :low AND uid < :high ORDER BY uid LIMIT :limit

-- name: still_at_work
-- A life of a name that is gone, and of which a process may still do something: its own, or one of a run that went with it.
SELECT s.uid FROM runners p CROSS JOIN resources s ON s.resource_no = p.entity_no
WHERE s.manager = :manager AND s.key = :key AND s.root = :root
UNION ALL SELECT s.uid FROM runners p CROSS JOIN runs r ON r.run_no = p.entity_no
  CROSS JOIN resources s ON s.resource_no = r.called_by
WHERE s.manager = :manager AND s.key = :key AND s.root = :root AND s.children = 'cancel' LIMIT 1

-- name: insert
-- A new life, with its manager's initial status.
INSERT INTO resources(resource_no, uid, root, manager, key, definition_id, environment_id, spec, spec_crc32, spec_digest,
  status, status_crc32, status_digest, conditions, spec_generation, created_wall_ms)
VALUES (:resource_no, :uid, :root, :manager, :key, :definition_id, :environment_id, :spec, :spec_crc32, :spec_digest,
  :status, :status_crc32, :status_digest, :conditions, 1, :now)
