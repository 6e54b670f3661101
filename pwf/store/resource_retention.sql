-- What living resources keep: effects that are still asked for, and a bounded history.

-- name: asked_for
-- Its manager asks for an effect, for the first time in a day.
UPDATE effects SET asked_wall_ms = :now
WHERE entity_no = :resource_no AND node = 'reconcile' AND visit = 1 AND part = :part
  AND (asked_wall_ms IS NULL OR asked_wall_ms <= :since_ms)

-- name: old_effect
-- Whether one is settled that nobody has asked for since.
SELECT 1 FROM effects
WHERE asked_wall_ms IS NOT NULL AND settled_wall_ms IS NOT NULL AND asked_wall_ms < :before_ms
  AND settled_wall_ms < :before_ms LIMIT 1

-- name: old_effects
-- Some of them.
SELECT f.entity_no, f.node, f.visit, f.part, e.name FROM effects f JOIN entities e ON e.entity_no = f.entity_no
WHERE f.asked_wall_ms IS NOT NULL AND f.settled_wall_ms IS NOT NULL AND f.asked_wall_ms < :before_ms
  AND f.settled_wall_ms < :before_ms ORDER BY f.asked_wall_ms LIMIT :limit

-- name: drop_effect
-- Its row: under its key, another one may happen from here on.
DELETE FROM effects WHERE entity_no = :resource_no AND node = :node AND visit = :visit AND part = :part

-- name: to_trim
-- The resource whose first event is the oldest, of those that have more than must be kept.
SELECT r.resource_no, e.revision, r.uid FROM resources r JOIN entities e ON e.entity_no = r.resource_no
WHERE r.trim_wall_ms IS NOT NULL AND r.gone_wall_ms IS NULL AND r.trim_wall_ms < :before_ms
ORDER BY r.trim_wall_ms LIMIT 1

-- name: oldest_events
-- Its history from the beginning on.
SELECT revision, at_wall_ms FROM events WHERE entity_no = :resource_no ORDER BY revision LIMIT :limit

-- name: drop_events
-- What is before the first one that is kept.
DELETE FROM events WHERE entity_no = :resource_no AND revision < :first

-- name: trimmed
-- Where its history begins from here on.
UPDATE resources SET events_from = :first, trim_wall_ms = :kept_ms WHERE resource_no = :resource_no
