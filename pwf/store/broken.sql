-- Runs whose rows can't be handled.

-- name: break_run
-- Park a run whose rows can't be handled.
UPDATE runs SET status = 'held', hold = 'broken', hold_detail = :detail
WHERE run_id = :run_id AND ended_wall_ms IS NULL
RETURNING run_no
