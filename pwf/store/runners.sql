-- Runners: custody of the one process per run generation, and what it reports.

-- name: runner_ending
-- The runner's work is over; the process is still to be proved dead.
UPDATE runners SET state = 'ending'
WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND generation = :generation

-- name: delete_runner
-- The process and all that it started are proved dead.
DELETE FROM runners WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND generation = :generation

-- name: all_runners
-- Every runner: as many as there is capacity, and those that an earlier daemon left.
SELECT r.run_id, p.generation, p.epoch, p.state, p.pid, p.start_tick, p.boot_id, p.session
FROM runners p CROSS JOIN runs r ON r.run_no = p.run_no

-- name: unknown_error
-- The error of the attempt whose effect is to be observed.
SELECT error FROM attempts
WHERE run_no = :run_no AND node = :node AND visit = :visit AND status = 'unknown' AND error IS NOT NULL
ORDER BY attempt DESC LIMIT 1

-- name: put_update
-- A record replaces the current item of its kind and key.
INSERT INTO updates(run_id, kind, key, data, updated_wall_ms) VALUES (:run_id, :kind, :key, :data, :now)
ON CONFLICT(run_id, kind, key) DO UPDATE SET data = excluded.data, updated_wall_ms = excluded.updated_wall_ms

-- name: count_updates
-- How many current items a run has.
SELECT count(*) FROM updates WHERE run_id = :run_id

-- name: lease_holder
-- Whether a writer of updates still owns the run.
SELECT 1 FROM entities
WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND generation = :generation AND lease_token = :token

-- name: drop_holds
-- What an earlier generation uploaded and never named.
DELETE FROM content_holds WHERE run_id = :run_id AND generation <= :generation

-- name: update_known
-- Whether a current item of that kind and key exists.
SELECT 1 FROM updates WHERE run_id = :run_id AND kind = :kind AND key = :key
