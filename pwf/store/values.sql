-- Values: inline up to 4 KiB, larger ones by digest in `contents`, in chunks of 256 KiB.

-- name: content
-- Whether a value is here, whole, and how large it is.
SELECT size, complete
FROM contents
WHERE digest = :digest

-- name: add_content
-- Begin a value; its chunks follow.
INSERT INTO contents (digest, size, complete, created_wall_ms)
VALUES (:digest, :size, 0, :wall_ms)
ON CONFLICT (digest) DO NOTHING

-- name: complete_content
-- All chunks are here and their digest was verified.
UPDATE contents
SET complete = 1, size = :size
WHERE digest = :digest

-- name: put_chunk
-- One chunk; sent again, it replaces itself.
INSERT INTO content_chunks (digest, chunk, data, crc32)
VALUES (:digest, :chunk, :data, :crc32)
ON CONFLICT (digest, chunk) DO UPDATE SET data = excluded.data, crc32 = excluded.crc32

-- name: read_chunk
-- One chunk with its checksum.
SELECT data, crc32
FROM content_chunks
WHERE digest = :digest AND chunk = :chunk

-- name: chunks_of
-- How many chunks a value has, and the number of the last.
SELECT count(*), coalesce(max(chunk), -1) FROM content_chunks WHERE digest = :digest

-- name: drop_chunks_after
-- What an abandoned upload of the same digest may have left past the end.
DELETE FROM content_chunks
WHERE digest = :digest AND chunk > :chunk

-- name: drop_content
-- A value that failed its check, or that nothing refers to; its chunks and holds go with it.
DELETE FROM contents
WHERE digest = :digest

-- name: hold
-- Keep an uploaded value until a transition of this entity and generation names it.
INSERT INTO content_holds (digest, entity_no, generation)
VALUES (:digest, :entity_no, :generation)
ON CONFLICT DO NOTHING

-- name: is_held
-- Whether this entity and generation has uploaded the value.
SELECT 1
FROM content_holds
WHERE digest = :digest AND entity_no = :entity_no AND generation = :generation

-- name: owner
-- The generation that may upload for an entity, if its lease has not been released.
SELECT generation
FROM entities
WHERE entity_no = :entity_no AND lease_token IS NOT NULL

-- name: contents_after
-- A page of all values in the order of their digests, for pruning. An unfinished one has taken what its chunks take.
SELECT digest, CASE WHEN complete THEN size ELSE (SELECT coalesce(max(chunk) + 1, 0) * 262144
    FROM content_chunks WHERE content_chunks.digest = contents.digest) END
FROM contents
WHERE digest > :after
ORDER BY digest
LIMIT :limit

-- name: is_referenced
-- Whether anything refers to the value.
SELECT EXISTS (SELECT 1 FROM definition_sources WHERE digest = :digest)
    OR EXISTS (SELECT 1 FROM runs WHERE input_digest = :digest)
    OR EXISTS (SELECT 1 FROM runs WHERE output_digest = :digest)
    OR EXISTS (SELECT 1 FROM attempts WHERE output_digest = :digest)
    OR EXISTS (SELECT 1 FROM requests WHERE prompt_digest = :digest)
    OR EXISTS (SELECT 1 FROM requests WHERE answer_digest = :digest)
    OR EXISTS (SELECT 1 FROM submissions WHERE value_digest = :digest)
    OR EXISTS (SELECT 1 FROM messages WHERE body_digest = :digest)
    OR EXISTS (SELECT 1 FROM effects WHERE request_digest = :digest)
    OR EXISTS (SELECT 1 FROM effects WHERE output_digest = :digest)
    OR EXISTS (SELECT 1 FROM former_children WHERE output_digest = :digest)
    OR EXISTS (SELECT 1 FROM resources WHERE spec_digest = :digest)
    OR EXISTS (SELECT 1 FROM resources WHERE status_digest = :digest)

-- name: is_kept
-- Whether a generation that still has its lease holds the value.
SELECT EXISTS (
    SELECT 1
    FROM content_holds AS h
    JOIN entities AS e ON e.entity_no = h.entity_no
    WHERE h.digest = :digest AND e.generation = h.generation AND e.lease_token IS NOT NULL)
