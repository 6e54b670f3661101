-- The rules that hold for entities of every kind. Each lists kind and name of what breaks it; `state verify` scans on
-- purpose.

-- name: history_broken
-- One event per revision, without gaps; of a managed resource, from the first that is kept.
SELECT e.kind, e.name FROM entities e WHERE
  e.revision + 1 - coalesce((SELECT events_from FROM resources WHERE resource_no = e.entity_no), 1)
    <> (SELECT count(*) FROM events v WHERE v.entity_no = e.entity_no)
  OR e.revision <> (SELECT max(v.revision) FROM events v WHERE v.entity_no = e.entity_no)

-- name: history_stray
-- Events, custody and uploads belong to an entity that is there.
SELECT 'entity', x.entity_no FROM (SELECT entity_no FROM events UNION SELECT entity_no FROM runners
  UNION SELECT entity_no FROM content_holds) x
WHERE NOT EXISTS (SELECT 1 FROM entities e WHERE e.entity_no = x.entity_no)

-- name: custody_unowned
-- A process works for the present generation of its entity, or for one that it has outlived and is being ended for.
SELECT e.kind, e.name FROM runners p JOIN entities e ON e.entity_no = p.entity_no WHERE p.generation > e.generation

-- name: effect_early
-- An effect was begun for the present generation of its entity, or for one before that.
SELECT e.kind, e.name FROM effects f JOIN entities e ON e.entity_no = f.entity_no WHERE f.generation > e.generation

-- name: kinds
-- Every kind that is there.
SELECT DISTINCT kind FROM entities

-- name: row_counts
-- What was looked at.
SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM attempts), (SELECT count(*) FROM events),
  (SELECT count(*) FROM requests), (SELECT count(*) FROM effects), (SELECT count(*) FROM contents)

-- name: status_counts
-- How many runs have each status, as it is counted.
SELECT status, runs FROM run_counts
