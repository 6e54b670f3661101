-- The run queue: due times, admission.

-- name: due_by_wall
-- Rows of one kind whose absolute time has come; of each kind its own, so that no crowd of new starts is before what goes on.
SELECT q.run_no, r.run_id FROM run_queue q JOIN runs r ON r.run_no = q.run_no
WHERE q.state = 'later' AND q.due_elapsed_ms IS NULL AND q.is_new = :is_new AND q.due_wall_ms <= :wall_ms
ORDER BY q.due_wall_ms LIMIT :limit

-- name: due_by_elapsed
-- Rows whose relative time has come, in this boot.
SELECT q.run_no, r.run_id FROM run_queue q JOIN runs r ON r.run_no = q.run_no
WHERE q.state = 'later' AND q.due_elapsed_ms IS NOT NULL AND q.due_elapsed_ms <= :elapsed_ms
ORDER BY q.due_elapsed_ms LIMIT :limit

-- name: make_ready
-- A due row waits for capacity now.
UPDATE run_queue SET state = 'ready' WHERE run_no = :run_no

-- name: next_by_wall
-- The nearest absolute time, of a run or a reconcile.
SELECT min(due_wall_ms) FROM (
  SELECT min(due_wall_ms) AS due_wall_ms FROM run_queue WHERE state = 'later' AND due_elapsed_ms IS NULL AND is_new = 0
  UNION ALL
  SELECT min(due_wall_ms) FROM run_queue WHERE state = 'later' AND due_elapsed_ms IS NULL AND is_new = 1
  UNION ALL
  SELECT min(due_wall_ms) FROM reconcile_queue WHERE state = 'later' AND due_elapsed_ms IS NULL)

-- name: next_by_elapsed
-- The nearest relative time, of a run or a reconcile.
SELECT min(due_elapsed_ms) FROM (
  SELECT min(due_elapsed_ms) AS due_elapsed_ms FROM run_queue WHERE state = 'later' AND due_elapsed_ms IS NOT NULL
  UNION ALL
  SELECT min(due_elapsed_ms) FROM reconcile_queue WHERE state = 'later' AND due_elapsed_ms IS NOT NULL)

-- name: going_on
-- The next runs that go on; one whose old processes are not proved dead waits for that.
SELECT q.priority, q.run_no, r.run_id, r.definition_id, r.environment_id
FROM run_queue q JOIN runs r ON r.run_no = q.run_no
WHERE q.state = 'ready' AND q.is_new = 0 AND NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = q.run_no)
  AND r.daemon_deaths < 2
ORDER BY q.priority DESC, q.due_wall_ms LIMIT :limit

-- name: suspected
-- Runs over which daemons died twice: each is admitted alone. Their rows in the queue, the first due first.
-- `daemon_deaths > 0` repeats the condition of the partial index, without which SQLite does not take it.
SELECT q.state, q.due_wall_ms, q.priority, q.run_no, r.run_id, r.definition_id, r.environment_id
FROM runs r JOIN run_queue q ON q.run_no = r.run_no
WHERE r.daemon_deaths > 0 AND r.daemon_deaths >= 2 AND q.state IN ('live', 'ready')
  AND (q.state = 'live' OR NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = q.run_no))
ORDER BY q.due_wall_ms

-- name: any_live
-- Whether any run or reconcile has a process, or gets one.
SELECT 1 FROM runs WHERE status = 'running' UNION ALL SELECT 1 FROM reconcile_queue WHERE state = 'live' LIMIT 1

-- name: new_starts
-- The next runs that were never launched, and so have no process.
SELECT q.priority, q.run_no, r.run_id, r.definition_id, r.environment_id
FROM run_queue q JOIN runs r ON r.run_no = q.run_no
WHERE q.state = 'ready' AND q.is_new = 1
ORDER BY q.priority DESC, q.due_wall_ms LIMIT :limit

-- name: make_live
-- The row of an admitted run.
UPDATE run_queue SET state = 'live' WHERE run_no = :run_no AND state = 'ready'

-- name: set_running
-- An admitted run; its new runner numbers its messages from 1.
UPDATE runs SET status = 'running', hold_detail = NULL, seq = 0, due_wall_ms = NULL, due_elapsed_ms = NULL, due_boot_id = NULL
WHERE run_no = :run_no

-- name: active_visit
-- The open attempt of a run, if there is one.
SELECT attempt FROM attempts WHERE run_no = :run_no AND status = 'active'

-- name: rebase
-- After a reboot, relative times go by the wall clock.
UPDATE run_queue SET due_boot_id = NULL, due_elapsed_ms = NULL
WHERE state = 'later' AND due_elapsed_ms IS NOT NULL AND due_boot_id <> :boot_id

-- name: rebase_runs
-- The same for the copy that a pause keeps. Before the queue's own, which it finds the runs by.
UPDATE runs SET due_boot_id = NULL, due_elapsed_ms = NULL
WHERE run_no IN (SELECT run_no FROM run_queue
  WHERE state = 'later' AND due_elapsed_ms IS NOT NULL AND due_boot_id <> :boot_id)
