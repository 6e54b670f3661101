-- What clients send before they name it: held for the daemon's own entity and its epoch.

-- name: drop_old
-- What nobody has named for long.
DELETE FROM content_holds WHERE entity_no = 0 AND held_wall_ms < :before_ms

-- name: waiting
-- How many values wait to be named, and how many bytes they have so far, one apart.
SELECT count(*), coalesce(sum(CASE WHEN c.complete THEN c.size ELSE
  (SELECT coalesce(max(k.chunk) + 1, 0) * 262144 FROM content_chunks k WHERE k.digest = c.digest) END), 0)
FROM content_holds h JOIN contents c ON c.digest = h.digest WHERE h.entity_no = 0 AND h.digest <> :digest

-- name: held
-- Keep it for the daemon of this epoch from now on.
INSERT INTO content_holds(digest, entity_no, generation, held_wall_ms) VALUES (:digest, 0, :epoch, :now)
ON CONFLICT(digest, entity_no, generation) DO UPDATE SET held_wall_ms = excluded.held_wall_ms

-- name: uploaded
-- The size of a value that was sent whole to the daemon that serves now.
SELECT c.size FROM content_holds h JOIN entities e ON e.entity_no = h.entity_no AND e.generation = h.generation
JOIN contents c ON c.digest = h.digest WHERE h.entity_no = 0 AND h.digest = :digest AND c.complete
