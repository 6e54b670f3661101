-- Events: the append-only history (written by Tx.event).

-- name: events_after
-- A page of one entity's history, in order.
SELECT revision, kind, actor, generation, at_wall_ms, payload
FROM events
WHERE entity_id = :entity_id AND revision > :after_revision
ORDER BY revision
LIMIT :limit
