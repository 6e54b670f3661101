-- The row of a run's settings.

-- name: settings
-- As they are after their newest change; without a row as the workflow declares them.
SELECT change, value FROM settings WHERE run_no = :run_no

-- name: definition
-- What a run was bound to.
SELECT definition_id FROM runs WHERE run_id = :run_id

-- name: inherit
-- A run that goes on from another has that one's settings, as its own change 0, where both declare the same.
INSERT INTO settings(run_no, change, value, changed_wall_ms)
SELECT :run_no, 0, s.value, :now FROM settings s JOIN runs r ON r.run_no = s.run_no WHERE r.run_id = :run_id
