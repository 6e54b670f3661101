-- Runs whose rows can't be handled.

-- name: number_of
-- The number of a run.
SELECT run_no FROM runs WHERE run_id = :run_id

-- name: name_of
-- What a run is known by, and whose child it is.
SELECT e.name, r.called_by FROM entities e LEFT JOIN runs r ON r.run_no = e.entity_no WHERE e.entity_no = :run_no

-- name: break_run
-- Park a run whose rows can't be handled. One that waits for its request still does when it is resumed.
UPDATE runs SET status = iif(status = 'waiting' AND EXISTS (SELECT 1 FROM requests q WHERE q.run_id = runs.run_id
  AND q.status = 'pending'), 'waiting', 'held'), hold = 'broken', hold_detail = :detail
WHERE run_no = :run_no AND ended_wall_ms IS NULL
