-- Sessions, read for themselves and for people.

-- name: find
-- A session by its exact id.
SELECT s.session_no, e.generation, s.connected, s.reported, s.cleared_no
FROM sessions s JOIN entities e ON e.entity_no = s.session_no WHERE s.session_id = :session_id

-- name: newest
-- A page, the one that was made last first, each with the run that goes on.
SELECT s.session_no, s.session_id, e.generation, s.connected, s.client, s.idle, s.created_wall_ms, s.seen_wall_ms,
  r.run_id, r.status, r.hold
FROM sessions s JOIN entities e ON e.entity_no = s.session_no
  LEFT JOIN runs r ON r.session_no = s.session_no AND r.ended_wall_ms IS NULL
WHERE s.session_no < :before ORDER BY s.session_no DESC LIMIT :limit

-- name: newest_connected
-- A page of those that have a connection.
SELECT s.session_no, s.session_id, e.generation, s.connected, s.client, s.idle, s.created_wall_ms, s.seen_wall_ms,
  r.run_id, r.status, r.hold
FROM sessions s INDEXED BY sessions_connected JOIN entities e ON e.entity_no = s.session_no
  LEFT JOIN runs r ON r.session_no = s.session_no AND r.ended_wall_ms IS NULL
WHERE s.connected = 1 AND s.session_no < :before ORDER BY s.session_no DESC LIMIT :limit

-- name: newest_run
-- The run that was started last for a session.
SELECT run_no, run_id, ended_wall_ms FROM runs WHERE session_no = :session_no ORDER BY run_no DESC LIMIT 1

-- name: is_news
-- Whether the session has still to hear how a run ended.
SELECT 1 FROM messages WHERE run_no = :run_no AND request_id IS NULL AND is_over = 0 LIMIT 1

-- name: next_message
-- The one that the session has and is not done with; else the first that it has not, of the oldest run that is not held;
-- a follow-up once its run has succeeded and the turn about that is over.
SELECT m.message_id, m.kind, m.status, m.reason, m.why, m.request_id, m.request_revision,
  m.body, m.body_digest, m.sent_wall_ms, r.run_id, e.revision, r.status, r.hold, q.status, q.revision
FROM messages m JOIN runs r ON r.run_no = m.run_no JOIN entities e ON e.entity_no = m.run_no
  LEFT JOIN requests q ON q.request_id = m.request_id
WHERE m.session_no = :session_no AND m.is_over = 0 AND (m.sent_wall_ms IS NOT NULL OR m.request_id IS NULL OR r.hold IS NULL)
  AND (m.kind <> 'follow_up' OR (r.status = 'completed'
    AND EXISTS (SELECT 1 FROM messages t WHERE t.run_no = m.run_no AND t.kind = 'terminal' AND t.is_over = 1)))
ORDER BY m.sent_wall_ms IS NULL, m.run_no, m.message_no LIMIT 1

-- name: run_end
-- How a run ended.
SELECT workflow, status, output, output_digest, error, reason FROM runs WHERE run_id = :run_id

-- name: open_turn
-- The turn that goes on, with the time that was worked on its request.
SELECT t.turn_id, m.message_id, t.started_wall_ms, coalesce(q.active_ms, 0)
FROM turns t JOIN messages m ON m.message_no = t.message_no LEFT JOIN requests q ON q.request_id = m.request_id
WHERE t.session_no = :session_no AND t.status = 'open'

-- name: request_of_run
-- What a run asks.
SELECT request_id FROM requests WHERE run_id = :run_id AND status = 'pending'

-- name: owns_run
-- Whether a run is a session's.
SELECT 1 FROM runs WHERE run_id = :id AND session_no = :session_no

-- name: owns_request
-- Whether a request is.
SELECT 1 FROM requests q JOIN runs r ON r.run_id = q.run_id
WHERE q.request_id = :id AND r.session_no = :session_no
