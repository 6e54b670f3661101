-- Sessions of agents: attached and let go.

-- name: find
-- A session by its exact id.
SELECT session_no FROM sessions WHERE session_id = :session_id

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

-- name: run_of
-- A run of a session.
SELECT run_no, ended_wall_ms FROM runs WHERE run_id = :run_id AND session_no = :session_no

-- name: clear
-- A run whose end is not shown any more.
UPDATE sessions SET cleared_no = :run_no WHERE session_no = :session_no
