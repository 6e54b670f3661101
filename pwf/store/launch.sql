-- What a runner is told at its launch.

-- name: past
-- The results so far, in order.
SELECT a.node, a.visit, a.status, a.output, a.output_digest, c.size, a.error
FROM attempts a LEFT JOIN contents c ON c.digest = a.output_digest
WHERE a.run_no = :run_no AND a.status IN ('completed', 'failed', 'timed_out', 'cancelled')
ORDER BY a.attempt

-- name: input
-- The run's input, root and pinned data files' home, and its name outside.
SELECT r.input, r.input_digest, c.size, d.root, r.outside_name
FROM runs r JOIN definitions d ON d.definition_id = r.definition_id LEFT JOIN contents c ON c.digest = r.input_digest
WHERE r.run_no = :run_no

-- name: updates
-- Kind and key of the run's current items.
SELECT kind, key FROM updates WHERE run_id = :run_id

-- name: data_files
-- The data files that are pinned with the definition.
SELECT path, digest, size FROM definition_sources WHERE definition_id = :definition_id AND kind = 'data'
