-- Events: the append-only history (written by Tx.event).

-- name: events_after
-- A page of a run's history, in order.
SELECT revision, kind, actor, generation, at_wall_ms, payload
FROM events
WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND revision > :after_revision
ORDER BY revision
LIMIT :limit

-- name: events_of_entity
-- A page of the history of whatever it is, in order.
SELECT revision, kind, actor, generation, at_wall_ms, payload
FROM events
WHERE entity_no = :entity_no AND revision > :after_revision
ORDER BY revision
LIMIT :limit
