-- Sessions of agents: attached and let go.

-- name: find
-- A session by its exact id.
SELECT s.session_no, e.generation, s.connected, s.reported FROM sessions s JOIN entities e ON e.entity_no = s.session_no
WHERE s.session_id = :session_id

-- name: add
-- A session that nobody has attached before.
INSERT INTO sessions(session_no, session_id, client, connected, created_wall_ms, seen_wall_ms)
VALUES (:session_no, :session_id, :client, 1, :now, :now)

-- name: attach
-- It has a connection again, or another one, which has reported nothing yet.
UPDATE sessions SET client = :client, connected = 1, reported = 0, idle = 0, seen_wall_ms = :now
WHERE session_no = :session_no

-- name: detach
-- The connection that holds this epoch has ended.
UPDATE sessions SET connected = 0, reported = 0, idle = 0, seen_wall_ms = :now
WHERE session_no = :session_no AND connected = 1
  AND EXISTS (SELECT 1 FROM entities WHERE entity_no = :session_no AND generation = :epoch)

-- name: holds
-- Whether an epoch is still the session's.
SELECT 1 FROM entities WHERE entity_no = :session_no AND generation = :epoch

-- name: newest
-- A page, the one that was made last first.
SELECT s.session_no, s.session_id, e.generation, s.connected, s.client, s.idle, s.created_wall_ms, s.seen_wall_ms
FROM sessions s JOIN entities e ON e.entity_no = s.session_no
WHERE s.session_no < :before ORDER BY s.session_no DESC LIMIT :limit

-- name: newest_connected
-- A page of those that have a connection.
SELECT s.session_no, s.session_id, e.generation, s.connected, s.client, s.idle, s.created_wall_ms, s.seen_wall_ms
FROM sessions s INDEXED BY sessions_connected JOIN entities e ON e.entity_no = s.session_no
WHERE s.connected = 1 AND s.session_no < :before ORDER BY s.session_no DESC LIMIT :limit
