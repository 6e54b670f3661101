-- The daemon's own entity, and the numbers of `daemon.status` and `state.status`.

-- name: daemon_entity
-- Whether the daemon's entity exists.
SELECT revision FROM entities WHERE entity_no = 0

-- name: meta
-- A fact of the database.
SELECT value FROM meta WHERE key = :key

-- name: run_counts
-- Runs by status.
SELECT status, runs FROM run_counts WHERE runs > 0

-- name: hold_counts
-- Held runs by reason; the index has only these.
SELECT hold, status, count(*) FROM runs WHERE hold IS NOT NULL GROUP BY hold, status

-- name: open_requests
-- How many questions are open, and since when.
SELECT count(*), min(created_wall_ms) FROM requests WHERE status = 'pending'

-- name: ambiguous
-- Effects whose outcome nobody knows. The second condition is that of the partial index, which SQLite wants repeated.
SELECT count(*) FROM effects WHERE status = 'ambiguous' AND status IN ('applying', 'ambiguous')

-- name: applying_manual
-- Manual effects that are being applied at this moment. The second condition is the partial index's, as above.
SELECT n.name, e.node, e.visit, e.part FROM effects e JOIN entities n ON n.entity_no = e.entity_no
WHERE e.status = 'applying' AND e.status IN ('applying', 'ambiguous') AND e.mode = 'manual' AND n.lease_token IS NOT NULL

-- name: ended_last
-- The newest run number, as a cheap size of history.
SELECT max(run_no) FROM runs
