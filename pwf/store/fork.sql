-- Forks: where one goes on, what it takes over from there, and what forbids it.

-- name: facts
-- What a fork takes from the old run, besides outputs.
SELECT r.run_no, r.workflow, r.definition_id, d.path, d.root, r.input, r.input_digest, v.body, r.priority, r.max_steps,
  r.status, r.node, r.visit, r.attempts, r.error, r.forked_from, e.revision
FROM runs r JOIN definitions d ON d.definition_id = r.definition_id
JOIN entities e ON e.entity_no = r.run_no JOIN environments v ON v.environment_id = r.environment_id
WHERE r.run_id = :run_id

-- name: unsettled
-- Effects of a run that are not settled.
SELECT node, visit, part, status FROM effects WHERE entity_no = :run_no AND status IN ('applying', 'ambiguous')

-- name: repeated
-- Effects from an attempt on that happened, or may have.
SELECT node, visit, part, status FROM effects
WHERE entity_no = :run_no AND status IN ('applied', 'abandoned', 'failed')
  AND (node, visit) IN (SELECT node, visit FROM attempts WHERE run_no = :run_no AND attempt >= :before)
ORDER BY reserved_wall_ms, node, visit, part

-- name: visit
-- Where a visit began, and whether it was taken over.
SELECT min(attempt), max(adopted) FROM attempts WHERE run_no = :run_no AND node = :node AND visit = :visit

-- name: newest_visit
-- The newest visit of a node.
SELECT max(visit) FROM attempts WHERE run_no = :run_no AND node = :node

-- name: entered
-- The nodes that a run has been through, in the order of their first visit.
SELECT node FROM attempts WHERE run_no = :run_no GROUP BY node ORDER BY min(attempt)

-- name: last
-- How the last attempt ended.
SELECT node, visit, status, output, output_digest FROM attempts WHERE run_no = :run_no AND attempt = :attempt

-- name: results
-- The latest result of each node before an attempt, and the latest that completed.
SELECT a.node, a.visit, a.status, a.output, a.output_digest, c.size
FROM attempts a LEFT JOIN contents c ON c.digest = a.output_digest
WHERE a.run_no = :run_no AND a.attempt IN (
  SELECT max(attempt) FROM attempts WHERE run_no = :run_no AND attempt < :before
    AND status IN ('completed', 'failed', 'timed_out', 'cancelled') GROUP BY node
  UNION
  SELECT max(attempt) FROM attempts WHERE run_no = :run_no AND attempt < :before AND status = 'completed' GROUP BY node)
ORDER BY a.attempt

-- name: going_on
-- The newest fork of a run at a visit that has not ended.
SELECT r.run_id, r.status, r.hold, r.definition_id, r.input, r.input_digest, r.max_steps, e.revision
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.forked_from = :run_id AND r.fork_node = :node AND r.fork_visit = :visit AND r.ended_wall_ms IS NULL
ORDER BY r.run_no DESC LIMIT 1
