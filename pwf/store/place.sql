-- Rows of the queue: a run that is due or live has one.

-- name: enqueue
-- Make a run due: now, later by the wall clock, or later by the elapsed clock of this boot.
INSERT INTO run_queue(run_no, state, priority, due_wall_ms, due_elapsed_ms, due_boot_id, is_new)
VALUES (:run_no, :state, :priority, :due_wall_ms, :due_elapsed_ms, :due_boot_id, :is_new)
ON CONFLICT(run_no) DO UPDATE SET state = excluded.state, due_wall_ms = excluded.due_wall_ms,
  due_elapsed_ms = excluded.due_elapsed_ms, due_boot_id = excluded.due_boot_id, is_new = excluded.is_new

-- name: dequeue
-- A run that is neither due nor live has no queue row.
DELETE FROM run_queue WHERE run_no = :run_no
