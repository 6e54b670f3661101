-- Retention: which trees of ended runs may go, and what nothing refers to once they are gone.

-- name: ended_before
-- Ended runs in the order of their end, from a place on; each with the root of its tree.
SELECT ended_wall_ms, run_no, coalesce(root_run, run_id) FROM runs
WHERE ended_wall_ms IS NOT NULL AND ended_wall_ms < :before_ms AND (ended_wall_ms, run_no) > (:after_ms, :after_no)
ORDER BY ended_wall_ms, run_no LIMIT :limit

-- name: tree
-- All runs of a tree: the first one and its restarts.
SELECT run_id, run_no, ended_wall_ms FROM runs WHERE run_id = :root
UNION ALL SELECT run_id, run_no, ended_wall_ms FROM runs WHERE root_run = :root AND run_id <> :root

-- name: effect_unsettled
-- Nobody knows yet whether an effect of the run happened.
SELECT 1 FROM effects WHERE run_id = :run_id AND status IN ('applying', 'ambiguous') LIMIT 1

-- name: process_unproved
-- A process of the run was not shown dead.
SELECT 1 FROM runners WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id)

-- name: drop_holds
-- What the run uploaded and never named.
DELETE FROM content_holds WHERE run_id = :run_id

-- name: drop_updates
-- The newest progress records.
DELETE FROM updates WHERE run_id = :run_id

-- name: drop_effects
-- The ledger's rows of the run: all are settled.
DELETE FROM effects WHERE run_id = :run_id

-- name: drop_requests
-- Questions and their answers.
DELETE FROM requests WHERE run_id = :run_id

-- name: drop_attempts
-- Every try of every visit.
DELETE FROM attempts WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id)

-- name: drop_events
-- The history.
DELETE FROM events WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id)

-- name: drop_entity
-- The revision and the generation: the id may be used by a new run from here on.
DELETE FROM entities WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id)

-- name: drop_queue
-- An ended run has no such row; one that is there all the same must not keep the whole walk from going on.
DELETE FROM run_queue WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id)

-- name: drop_run
-- The run itself, if it has ended.
DELETE FROM runs WHERE run_id = :run_id AND ended_wall_ms IS NOT NULL

-- name: unused_definitions
-- Definitions that no run is bound to, and that were not saved just now.
SELECT definition_id FROM definitions AS d
WHERE definition_id > :after AND created_wall_ms < :before_ms
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.definition_id = d.definition_id)
ORDER BY definition_id LIMIT :limit

-- name: drop_definition
-- A definition that no run is bound to; its list of sources goes with it.
DELETE FROM definitions
WHERE definition_id = :definition_id AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.definition_id = :definition_id)

-- name: unused_environments
-- Environments that no run has.
SELECT environment_id FROM environments AS e
WHERE environment_id > :after AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.environment_id = e.environment_id)
ORDER BY environment_id LIMIT :limit

-- name: drop_environment
-- An environment that no run has.
DELETE FROM environments
WHERE environment_id = :environment_id
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.environment_id = :environment_id)
