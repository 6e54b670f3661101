-- What a run's runner reports besides its steps.

-- name: unknown_error
-- The error of the attempt whose effect is to be observed.
SELECT error FROM attempts
WHERE run_no = :run_no AND node = :node AND visit = :visit AND status = 'unknown' AND error IS NOT NULL
ORDER BY attempt DESC LIMIT 1

-- name: put_update
-- A record replaces the current item of its kind and key.
INSERT INTO updates(run_id, kind, key, data, updated_wall_ms) VALUES (:run_id, :kind, :key, :data, :now)
ON CONFLICT(run_id, kind, key) DO UPDATE SET data = excluded.data, updated_wall_ms = excluded.updated_wall_ms

-- name: count_updates
-- How many current items a run has.
SELECT count(*) FROM updates WHERE run_id = :run_id

-- name: update_known
-- Whether a current item of that kind and key exists.
SELECT 1 FROM updates WHERE run_id = :run_id AND kind = :kind AND key = :key

-- name: put_title
-- What people know the run by.
UPDATE runs SET title = :title WHERE run_no = :run_no
