-- Custody: the one process of each entity's generation, whatever its kind.

-- name: add_runner
-- Custody before work: whose process it is stands here before it is told to begin. Without one: a place for it.
INSERT INTO runners(entity_no, generation, epoch, state, created_wall_ms, pid, start_tick, boot_id, session)
VALUES (:entity_no, :generation, :epoch, :state, :now, :pid, :start_tick, :boot_id, :session)

-- name: runner_started
-- The process of an entity that was admitted without one.
UPDATE runners SET state = 'live', pid = :pid, start_tick = :start_tick, boot_id = :boot_id, session = :session
WHERE entity_no = :entity_no AND generation = :generation

-- name: runner_ending
-- The process's work is over; it is still to be proved dead.
UPDATE runners SET state = 'ending' WHERE entity_no = :entity_no AND generation = :generation

-- name: runner_again
-- Of a process that was given up with its entity's last word, and then not proved dead; nobody has the entity since then.
INSERT INTO runners(entity_no, generation, epoch, state, created_wall_ms, pid, start_tick, boot_id, session)
SELECT e.entity_no, e.generation, (SELECT generation FROM entities WHERE entity_no = 0), 'ending', :now,
  :pid, :start_tick, :boot_id, :session
FROM entities e WHERE e.entity_no = :entity_no AND e.generation = :generation
ON CONFLICT (entity_no) DO NOTHING

-- name: delete_runner
-- Nothing of the process is the entity's any more.
DELETE FROM runners WHERE entity_no = :entity_no AND generation = :generation

-- name: drop_holds
-- What this and earlier generations uploaded and never named.
DELETE FROM content_holds WHERE entity_no = :entity_no AND generation <= :generation

-- name: has_runner
-- Whether a process of the entity is not proved dead.
SELECT 1 FROM runners WHERE entity_no = :entity_no

-- name: standing
-- A stretch of the processes: there are as many as there is capacity, and those that an earlier daemon left.
SELECT p.entity_no, e.kind, e.name, p.generation, p.pid, p.start_tick, p.boot_id, p.session
FROM runners p CROSS JOIN entities e ON e.entity_no = p.entity_no
WHERE p.entity_no > :after ORDER BY p.entity_no LIMIT :limit

-- name: void_runners
-- In a copy, no process is ours.
DELETE FROM runners

-- name: lease_holder
-- Whether a writer still owns the entity.
SELECT 1 FROM entities WHERE entity_no = :entity_no AND generation = :generation AND lease_token = :token
