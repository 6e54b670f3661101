-- Pause, resume, cancel.

-- name: runner_of
-- The process that a run has, if it has one.
SELECT generation, state FROM runners WHERE run_id = :run_id

-- name: open_request
-- The question that a run waits for.
SELECT request_id FROM requests WHERE run_id = :run_id AND status = 'pending'
