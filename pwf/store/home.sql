-- Whose database this is: its home id, bound to the folder that it lies in.

-- name: fact
-- A fact of the database.
SELECT value FROM meta WHERE key = :key

-- name: set_fact
-- Write or replace a fact.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: runners
-- Every runner row: in a copy, none of them is ours.
SELECT r.run_id, p.generation FROM runners p CROSS JOIN runs r ON r.run_no = p.run_no

-- name: running
-- Runs that say they run, with or without a runner's row.
SELECT r.run_id, e.generation FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.status = 'running'

-- name: not_ended
-- Runs that would go on by themselves, by an answer, or when somebody resumes them. An ambiguous effect, a row that
-- can't be handled and a run that is held as restored already keep their hold: a person has to look there anyway.
SELECT run_id FROM runs
WHERE status IN ('queued', 'running', 'waiting', 'held')
  AND (hold IS NULL OR hold NOT IN ('effect_ambiguous', 'broken', 'restored'))

-- name: void_leases
-- No lease in a copy was given by whoever serves it.
UPDATE entities
SET lease_owner = NULL, lease_token = NULL, lease_boot_id = NULL, lease_until_awake_ms = NULL
WHERE lease_owner IS NOT NULL

-- name: void_runners
-- What is left of runners' rows: those of runs whose rows can't be handled.
DELETE FROM runners

-- name: last_epoch
-- The number of the last daemon that the database knows.
SELECT generation FROM entities WHERE entity_no = 0
