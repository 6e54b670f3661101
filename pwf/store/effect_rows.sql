-- Rows of the effect ledger, as lists and views show them.

-- name: effects_of_entity
-- The ledger's rows of whatever it is, newest first.
SELECT n.name, r.outside_name, e.node, e.visit, e.part, e.type, e.mode, e.status, e.attempts, e.ref, e.settled_by, e.note,
  e.fingerprint, e.error, e.reserved_wall_ms, e.settled_wall_ms
FROM effects e JOIN entities n ON n.entity_no = e.entity_no LEFT JOIN runs r ON r.run_no = e.entity_no
WHERE e.entity_no = :entity_no ORDER BY e.reserved_wall_ms DESC LIMIT 100

-- name: effects_unsettled
-- What is still open in the ledger, oldest first.
SELECT n.name, r.outside_name, e.node, e.visit, e.part, e.type, e.mode, e.status, e.attempts, e.ref, e.settled_by, e.note,
  e.fingerprint, e.error, e.reserved_wall_ms, e.settled_wall_ms
FROM effects e JOIN entities n ON n.entity_no = e.entity_no LEFT JOIN runs r ON r.run_no = e.entity_no
WHERE e.status = :status AND e.status IN ('applying', 'ambiguous') ORDER BY e.reserved_wall_ms LIMIT :limit

-- name: effects_newest
-- Rows among the `looked` newest: the newest of all, or the oldest of one status.
SELECT n.name, r.outside_name, e.node, e.visit, e.part, e.type, e.mode, e.status, e.attempts, e.ref, e.settled_by, e.note,
  e.fingerprint, e.error, e.reserved_wall_ms, e.settled_wall_ms
FROM (SELECT * FROM effects ORDER BY reserved_wall_ms DESC LIMIT :looked) e
JOIN entities n ON n.entity_no = e.entity_no LEFT JOIN runs r ON r.run_no = e.entity_no
WHERE (:status IS NULL OR e.status = :status) AND (:messages OR n.kind <> 'channel')
ORDER BY iif(:status IS NULL, -1, 1) * e.reserved_wall_ms LIMIT :limit

-- name: one_effect
-- The ledger's row under one key.
SELECT n.name, r.outside_name, e.node, e.visit, e.part, e.type, e.mode, e.status, e.attempts, e.ref, e.settled_by, e.note,
  e.fingerprint, e.error, e.reserved_wall_ms, e.settled_wall_ms
FROM effects e JOIN entities n ON n.entity_no = e.entity_no LEFT JOIN runs r ON r.run_no = e.entity_no
WHERE e.entity_no = :entity_no AND e.node = :node AND e.visit = :visit AND e.part = :part
