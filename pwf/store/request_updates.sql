-- What the holder of a request says of its work, before it hands anything in.

-- name: known
-- Whether there is a current item of this kind and key.
SELECT 1 FROM updates WHERE run_id = :run_id AND kind = :kind AND key = :key

-- name: count
-- How many current items a run has.
SELECT count(*) FROM updates WHERE run_id = :run_id

-- name: put
-- The item as it is now.
INSERT INTO updates(run_id, kind, key, data, updated_wall_ms, attempt)
VALUES (:run_id, :kind, :key, :data, :now, :attempt)
ON CONFLICT (run_id, kind, key) DO UPDATE SET data = excluded.data, updated_wall_ms = excluded.updated_wall_ms,
  attempt = excluded.attempt, samples = NULL
