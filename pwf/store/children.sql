-- Child runs of managed resources: each run, and its restarts, under a key of its resource's manager.

-- name: first
-- The first run under a key, which was started for what its manager asked for; or what is left of it.
SELECT run_id, call_fingerprint FROM runs
WHERE called_by = :resource_no AND call_key = :key AND restarted_from IS NULL
UNION ALL SELECT run_id, call_fingerprint FROM former_children WHERE resource_no = :resource_no AND call_key = :key

-- name: newest
-- The last run under a key: the first one, or a restart of it; or what is left of it.
SELECT r.run_no, r.call_key, r.run_id, r.workflow, r.status, r.hold, r.reason, r.restart_no, r.created_wall_ms,
  r.ended_wall_ms, r.output, r.output_digest, c.size
FROM runs r LEFT JOIN contents c ON c.digest = r.output_digest
WHERE r.called_by = :resource_no AND r.call_key = :key
UNION ALL SELECT f.run_no, f.call_key, f.run_id, f.workflow, f.status, NULL, f.reason, f.restart_no, f.created_wall_ms,
  f.ended_wall_ms, f.output, f.output_digest, c.size
FROM former_children f LEFT JOIN contents c ON c.digest = f.output_digest
WHERE f.resource_no = :resource_no AND f.call_key = :key ORDER BY 1 DESC LIMIT 1

-- name: children
-- The newest runs of a resource, and what is left of those before.
SELECT r.run_no, r.call_key, r.run_id, r.workflow, r.status, r.hold, r.reason, r.restart_no, r.created_wall_ms,
  r.ended_wall_ms, r.output, r.output_digest, c.size
FROM runs r LEFT JOIN contents c ON c.digest = r.output_digest
WHERE r.called_by = :resource_no
UNION ALL SELECT f.run_no, f.call_key, f.run_id, f.workflow, f.status, NULL, f.reason, f.restart_no, f.created_wall_ms,
  f.ended_wall_ms, f.output, f.output_digest, c.size
FROM former_children f LEFT JOIN contents c ON c.digest = f.output_digest
WHERE f.resource_no = :resource_no ORDER BY 1 DESC LIMIT :limit

-- name: going_on
-- Those that have not ended.
SELECT run_id FROM runs WHERE called_by = :resource_no AND ended_wall_ms IS NULL

-- name: to_stop
-- Those that were cancelled, and whose processes are still there.
SELECT r.run_id, e.revision FROM resources s JOIN runs r ON r.called_by = s.resource_no
JOIN entities e ON e.entity_no = r.run_no JOIN runners p ON p.entity_no = r.run_no
WHERE s.uid = :uid AND r.status = 'cancelled'
