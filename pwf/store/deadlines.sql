-- Requests whose time is over, the first one first: by the clock of this boot, or by the wall clock. The indexes are
-- named, since SQLite would rather sort all open requests than trust that few of them have a deadline.

-- name: next_by_wall
-- The nearest deadline that goes by the wall clock.
SELECT request_id, run_id, deadline_wall_ms FROM requests INDEXED BY requests_due_wall
WHERE status = 'pending' AND deadline_wall_ms IS NOT NULL AND deadline_elapsed_ms IS NULL
ORDER BY deadline_wall_ms LIMIT 1

-- name: next_by_elapsed
-- The nearest deadline of this boot.
SELECT request_id, run_id, deadline_elapsed_ms FROM requests INDEXED BY requests_due_elapsed
WHERE status = 'pending' AND deadline_elapsed_ms IS NOT NULL
ORDER BY deadline_elapsed_ms LIMIT 1

-- name: asked
-- The open request, by its id.
SELECT attempt, kind, default_answer FROM requests WHERE request_id = :request_id AND status = 'pending'

-- name: settle
-- The default is the answer.
UPDATE requests SET status = 'settled', answer = default_answer, answer_crc32 = default_answer_crc32,
  answered_by = :by, settled_wall_ms = :now WHERE request_id = :request_id AND status = 'pending'

-- name: expire
-- Nobody has answered in time, and nothing stands in for an answer.
UPDATE requests SET status = 'cancelled', answered_by = :by, settled_wall_ms = :now
WHERE request_id = :request_id AND status = 'pending'

-- name: stop_due
-- One that is still due after it was settled: nobody waits behind it.
UPDATE requests SET left_ms = 0, deadline_wall_ms = NULL, deadline_elapsed_ms = NULL, deadline_boot_id = NULL
WHERE request_id = :request_id AND status = 'pending' AND deadline_wall_ms IS NOT NULL
