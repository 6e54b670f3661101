-- What is read to show one effect.

-- name: steps
-- The attempts of a visit, newest first.
SELECT a.attempt, a.node, a.visit, a.tries, a.status, a.generation, a.started_wall_ms, a.ended_wall_ms, a.active_ms, a.printed, a.survivors,
  a.output, a.output_digest, c.size, a.error
FROM attempts a LEFT JOIN contents c ON c.digest = a.output_digest
WHERE a.run_no = :run_no AND a.node = :node AND a.visit = :visit ORDER BY a.attempt DESC LIMIT 100
