-- The clock of an open request: it goes while the run waits for nothing else, and stands still under a hold.

-- name: start
-- Its run is not held: what is left of its time begins to pass.
UPDATE requests SET deadline_wall_ms = :wall_ms + left_ms, deadline_elapsed_ms = :elapsed_ms + left_ms,
  deadline_boot_id = :boot_id, left_ms = NULL
WHERE run_id = :run_id AND status = 'pending' AND left_ms IS NOT NULL

-- name: stop
-- Its run is held: what is left is kept. Across a reboot only the wall clock says how much that is.
UPDATE requests SET
  left_ms = max(0, CASE WHEN deadline_boot_id = :boot_id THEN deadline_elapsed_ms - :elapsed_ms
    ELSE deadline_wall_ms - :wall_ms END),
  deadline_wall_ms = NULL, deadline_elapsed_ms = NULL, deadline_boot_id = NULL
WHERE run_id = :run_id AND status = 'pending' AND deadline_wall_ms IS NOT NULL

-- name: rebase
-- After a reboot, deadlines go by the wall clock.
UPDATE requests SET deadline_elapsed_ms = NULL, deadline_boot_id = NULL
WHERE status = 'pending' AND deadline_elapsed_ms IS NOT NULL AND deadline_boot_id <> :boot_id
