-- Settings of runs that were changed. A run without a row has them as its workflow declares them.

-- name: put_settings
-- A change replaces them.
INSERT INTO settings(run_no, change, value, changed_wall_ms) VALUES (:run_no, :change, :value, :now)
ON CONFLICT(run_no) DO UPDATE SET change = excluded.change, value = excluded.value, changed_wall_ms = excluded.changed_wall_ms

-- name: facts
-- What a change of them is checked by.
SELECT run_no, definition_id, environment_id, status FROM runs WHERE run_id = :run_id
