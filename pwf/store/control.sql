-- Pause, resume, cancel.

-- name: open_request
-- The question that a run waits for.
SELECT request_id FROM requests WHERE run_id = :run_id AND status = 'pending'
