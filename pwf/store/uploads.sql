-- What clients send before they name it: held for the daemon's own entity and its epoch.

-- name: drop_old
-- What nobody has named for long.
DELETE FROM content_holds WHERE entity_no = 0 AND held_wall_ms < :before_ms

-- name: waiting
-- The other values that are held, with the bytes that they have so far.
SELECT h.digest, h.held_wall_ms, CASE WHEN c.complete THEN c.size ELSE
  (SELECT coalesce(max(k.chunk) + 1, 0) * 262144 FROM content_chunks k WHERE k.digest = c.digest) END
FROM content_holds h JOIN contents c ON c.digest = h.digest WHERE h.entity_no = 0 AND h.digest <> :digest

-- name: drop_named
-- What a request has named, and has for itself by now.
DELETE FROM content_holds WHERE entity_no = 0 AND digest = :digest

-- name: sent
-- How many pieces of a value the daemon of this epoch was sent.
SELECT sent FROM content_holds WHERE entity_no = 0 AND generation = :epoch AND digest = :digest

-- name: held
-- Keep it for the daemon of this epoch from now on; so many of its pieces were sent.
INSERT INTO content_holds(digest, entity_no, generation, held_wall_ms, sent) VALUES (:digest, 0, :epoch, :now, :sent)
ON CONFLICT(digest, entity_no, generation) DO UPDATE SET held_wall_ms = excluded.held_wall_ms, sent = excluded.sent

-- name: uploaded
-- The size of a value all of whose pieces were sent to the daemon that serves now.
SELECT c.size FROM content_holds h JOIN entities e ON e.entity_no = h.entity_no AND e.generation = h.generation
JOIN contents c ON c.digest = h.digest
WHERE h.entity_no = 0 AND h.digest = :digest AND c.complete AND h.sent * 262144 >= c.size
