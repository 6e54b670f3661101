-- Forks: where one goes on, what it takes over from there, and what forbids it.

-- name: facts
-- What a fork takes from the old run, besides outputs.
SELECT r.run_no, r.workflow, r.definition_id, d.path, d.root, r.input, r.input_digest, v.body, r.priority, r.max_steps, r.steps,
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

-- name: gone_on_with
-- The fork of a run that goes on no earlier than from an attempt: one that has not ended, else the newest.
SELECT r.run_id, r.status, r.hold, r.reason, r.definition_id, r.input, r.input_digest, r.max_steps, r.fork_node,
  r.fork_visit, e.revision
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.forked_from = :run_id AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = :run_no
  AND a.attempt < :before AND a.node = r.fork_node AND a.visit = r.fork_visit)
ORDER BY r.ended_wall_ms IS NULL DESC, r.run_no DESC LIMIT 1

-- name: answered
-- Whose question a result answered, which may have been taken over, and who answered it.
WITH RECURSIVE line(run_id, back) AS (
  SELECT :run_id, 0 UNION SELECT r.forked_from, l.back + 1 FROM line l JOIN runs r ON r.run_id = l.run_id
  WHERE r.forked_from IS NOT NULL)
SELECT q.run_id, q.answered_by FROM line l JOIN requests q ON q.run_id = l.run_id
WHERE q.node = :node AND q.visit = :visit AND q.status = 'settled' ORDER BY l.back, q.created_wall_ms DESC LIMIT 1
