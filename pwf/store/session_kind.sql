-- What an earlier daemon leaves of sessions, and how long they are kept.

-- name: all_gone
-- Every connection has ended with its daemon.
UPDATE sessions SET connected = 0, reported = 0, idle = 0 WHERE connected = 1

-- name: nothing_worked_on
-- What was worked on is counted up to its last sample, and no more.
DELETE FROM active_intervals

-- name: owns
-- A run that is kept is the session's.
SELECT 1 FROM runs WHERE session_no = :session_no LIMIT 1

-- name: ended_before
-- Sessions that nobody has seen since; none is ever over by itself. Each is a group of its own.
SELECT seen_wall_ms, session_no, session_id FROM sessions
WHERE connected = 0 AND seen_wall_ms < :before_ms AND (seen_wall_ms, session_no) > (:after_ms, :after_no)
ORDER BY seen_wall_ms, session_no LIMIT :limit

-- name: itself
-- The group.
SELECT session_no, session_id, CASE WHEN connected = 0 THEN seen_wall_ms END FROM sessions WHERE session_id = :group

-- name: drop_session
-- The session itself, if it has no connection.
DELETE FROM sessions WHERE session_no = :session_no AND connected = 0
