-- The current items that a run's steps have published.

-- name: put_update
-- A record replaces the current item of its kind and key.
INSERT INTO updates(run_id, kind, key, data, updated_wall_ms, attempt, samples)
VALUES (:run_id, :kind, :key, :data, :now, :attempt, :samples)
ON CONFLICT(run_id, kind, key) DO UPDATE SET data = excluded.data, updated_wall_ms = excluded.updated_wall_ms,
  attempt = excluded.attempt, samples = excluded.samples

-- name: count_updates
-- How many current items a run has.
SELECT count(*) FROM updates WHERE run_id = :run_id

-- name: update_known
-- The current item of that kind and key, if it exists.
SELECT attempt, samples FROM updates WHERE run_id = :run_id AND kind = :kind AND key = :key

-- name: put_title
-- What people know the run by.
UPDATE runs SET title = :title WHERE run_no = :run_no

-- name: updates
-- The current items of a run.
SELECT kind, key, data, updated_wall_ms, attempt, samples FROM updates WHERE run_id = :run_id ORDER BY updated_wall_ms DESC LIMIT 64
