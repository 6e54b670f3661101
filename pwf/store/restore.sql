-- Restoring: what a present database has that a backup has not.

-- name: revisions
-- Every run with its write counter.
SELECT r.run_id, e.revision, r.status FROM runs r JOIN entities e ON e.entity_no = r.run_no ORDER BY r.run_no

-- name: going_on
-- Runs that would be held as restored.
SELECT status, count(*) FROM runs WHERE ended_wall_ms IS NULL GROUP BY status
