-- Whose database this is: its home id, bound to the folder that it lies in.

-- name: fact
-- A fact of the database.
SELECT value FROM meta WHERE key = :key

-- name: set_fact
-- Write or replace a fact.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: runners
-- Every runner row: in a copy, none of them is ours.
SELECT run_id, generation FROM runners

-- name: not_ended
-- Runs that would go on by themselves or by an answer.
SELECT run_id FROM runs WHERE status IN ('queued', 'running', 'waiting') AND hold IS NULL

-- name: void_leases
-- No lease in a copy was given by whoever serves it.
UPDATE entities
SET lease_owner = NULL, lease_token = NULL, lease_boot_id = NULL, lease_until_awake_ms = NULL
WHERE lease_owner IS NOT NULL
