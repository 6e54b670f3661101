-- What is read to show one effect.

-- name: values_of
-- What was wanted of one that was made in mid-step, what it gave, and whether its code can observe it.
SELECT e.request, e.request_digest, r.size, e.output, e.output_digest, o.size, e.observable
FROM effects e LEFT JOIN contents r ON r.digest = e.request_digest LEFT JOIN contents o ON o.digest = e.output_digest
WHERE e.entity_no = :entity_no AND e.node = :node AND e.visit = :visit AND e.part = :part

-- name: others_ambiguous
-- Whether a person is asked about another effect of the visit as well.
SELECT 1 FROM effects
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part <> :part AND status = 'ambiguous' LIMIT 1

-- name: steps
-- The attempts of a visit, newest first.
SELECT a.attempt, a.node, a.visit, a.tries, a.status, a.generation, a.started_wall_ms, a.ended_wall_ms, a.active_ms, a.printed, a.survivors,
  a.output, a.output_digest, c.size, a.error, a.observed, a.adopted, a.notice
FROM attempts a LEFT JOIN contents c ON c.digest = a.output_digest
WHERE a.run_no = :run_no AND a.node = :node AND a.visit = :visit ORDER BY a.attempt DESC LIMIT 100
