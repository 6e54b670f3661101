-- Retention: what belongs to any entity and goes with it, and what nothing refers to once runs are gone.

-- name: process_unproved
-- A process of the entity was not shown dead.
SELECT 1 FROM runners WHERE entity_no = :entity_no

-- name: drop_holds
-- What it uploaded and never named.
DELETE FROM content_holds WHERE entity_no = :entity_no

-- name: drop_events
-- The history.
DELETE FROM events WHERE entity_no = :entity_no

-- name: drop_entity
-- The revision and the generation: its name may be used anew from here on.
DELETE FROM entities WHERE entity_no = :entity_no

-- name: unused_definitions
-- Definitions that no run or resource is bound to.
SELECT definition_id FROM definitions AS d
WHERE definition_id > :after AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.definition_id = d.definition_id)
  AND NOT EXISTS (SELECT 1 FROM resources WHERE resources.definition_id = d.definition_id)
ORDER BY definition_id LIMIT :limit

-- name: drop_definition
-- A definition that no run or resource is bound to; its list of sources goes with it.
DELETE FROM definitions
WHERE definition_id = :definition_id AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.definition_id = :definition_id)
  AND NOT EXISTS (SELECT 1 FROM resources WHERE resources.definition_id = :definition_id)

-- name: unused_environments
-- Environments that no run or resource has.
SELECT environment_id FROM environments AS e
WHERE environment_id > :after AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.environment_id = e.environment_id)
  AND NOT EXISTS (SELECT 1 FROM resources WHERE resources.environment_id = e.environment_id)
ORDER BY environment_id LIMIT :limit

-- name: drop_environment
-- An environment that no run or resource has.
DELETE FROM environments
WHERE environment_id = :environment_id
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.environment_id = :environment_id)
  AND NOT EXISTS (SELECT 1 FROM resources WHERE resources.environment_id = :environment_id)

-- name: run_known
-- Whether there is such a run, or a managed resource of that uid.
SELECT 1 FROM runs WHERE run_id = :run_id
UNION ALL SELECT 1 FROM resources WHERE uid = :run_id
