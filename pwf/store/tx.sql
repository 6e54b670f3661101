-- Entities: the one row that every protected write goes through first.

-- name: fence
-- The one-statement fence: compare what the caller brings, count the write.
UPDATE entities
SET revision = revision + 1
WHERE entity_no = :entity_no
  AND (:generation IS NULL OR generation = :generation)
  AND (:token IS NULL OR lease_token = :token)
  AND (:expected_revision IS NULL OR revision = :expected_revision)

-- name: revision
-- What the fence has counted up to, where the caller did not know it before.
SELECT revision FROM entities WHERE entity_no = :entity_no

-- name: count_writes
-- Further writes under the fence that this command has passed.
UPDATE entities SET revision = revision + :count WHERE entity_no = :entity_no

-- name: entity
-- Why a fence or a lease found nothing, and the state of a lease.
SELECT revision, generation, lease_token, lease_owner, lease_until_awake_ms, lease_boot_id, kind, name
FROM entities
WHERE entity_no = :entity_no

-- name: holds_epoch
-- Whether the daemon's epoch is still the one that this process claimed.
SELECT 1
FROM entities
WHERE entity_no = 0 AND generation = :generation AND lease_token = :token

-- name: create_entity
-- A new entity: the next number (or the given one), revision 1, generation 0, no lease.
INSERT INTO entities (entity_no, kind, name, revision, generation)
VALUES (:entity_no, :kind, :name, 1, 0)

-- name: take_lease
-- The next owner, if no other owner's lease is live: ended by the awake clock, of another boot, or proved dead.
-- `counted` 0: no revision, of an entity whose owners come and go without a change that anybody could see.
UPDATE entities
SET revision = revision + :counted,
    generation = generation + 1,
    lease_token = :token,
    lease_owner = :owner,
    lease_until_awake_ms = :until_awake_ms,
    lease_boot_id = :boot_id
WHERE entity_no = :entity_no
  AND (lease_token IS NULL
    OR lease_boot_id <> :boot_id
    OR lease_until_awake_ms <= :awake_ms
    OR lease_owner = :owner
    OR lease_owner = :dead_owner)
RETURNING revision, generation

-- name: renew_lease
-- The holder goes on: neither a revision nor an event. An ended lease that nobody has taken may be renewed.
UPDATE entities
SET lease_until_awake_ms = :until_awake_ms,
    lease_boot_id = :boot_id
WHERE entity_no = :entity_no
  AND generation = :generation
  AND lease_token = :token

-- name: release_lease
-- Give the lease up, after a fence; the generation stays.
UPDATE entities
SET lease_token = NULL,
    lease_owner = NULL,
    lease_until_awake_ms = NULL,
    lease_boot_id = NULL
WHERE entity_no = :entity_no

-- name: add_event
-- One entry of the append-only history; the primary key allows one per revision.
INSERT INTO events (entity_no, revision, kind, actor, generation, at_wall_ms, payload)
VALUES (:entity_no, :revision, :kind, :actor, :generation, :at_wall_ms, :payload)
