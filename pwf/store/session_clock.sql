-- Active time: a row stands as long as the model works on a request, in a turn that was reported, on a session that is connected.

-- name: start
-- The model works on it from now on. :left_ms: what is left of its limit; NULL: it has none.
INSERT INTO active_intervals(request_id, session_no, since_awake_ms, due_awake_ms)
VALUES (:request_id, :session_no, :now, :now + :left_ms) ON CONFLICT(request_id) DO NOTHING

-- name: of_session
-- What a session's model works on.
SELECT request_id, since_awake_ms FROM active_intervals WHERE session_no = :session_no

-- name: of_request
-- Since when the model has worked on it.
SELECT request_id, since_awake_ms FROM active_intervals WHERE request_id = :request_id

-- name: count
-- So much more time.
UPDATE requests SET active_ms = active_ms + :active_ms WHERE request_id = :request_id

-- name: on_attempt
-- The same on the attempt that asked.
UPDATE attempts SET active_ms = q.active_ms FROM requests q JOIN runs r ON r.run_id = q.run_id
WHERE q.request_id = :request_id AND attempts.run_no = r.run_no AND attempts.attempt = q.attempt

-- name: sampled
-- Counted up to now.
UPDATE active_intervals SET since_awake_ms = :now WHERE request_id = :request_id

-- name: stop
-- It is not worked on any more.
DELETE FROM active_intervals WHERE request_id = :request_id

-- name: active_ms
-- How long it was worked on.
SELECT active_ms FROM requests WHERE request_id = :request_id

-- name: serves
-- Whether the daemon of an epoch still serves.
SELECT 1 FROM entities WHERE entity_no = 0 AND generation = :epoch

-- name: next_due
-- Whose limit passes next, of runs that wait for it: none that is held, or whose submission is being judged.
SELECT a.request_id, q.run_id, a.due_awake_ms FROM active_intervals a INDEXED BY active_due
  JOIN requests q ON q.request_id = a.request_id JOIN runs r ON r.run_id = q.run_id
WHERE a.due_awake_ms IS NOT NULL AND q.status = 'pending' AND r.status = 'waiting' AND r.hold IS NULL
  AND NOT EXISTS (SELECT 1 FROM submissions s WHERE s.request_id = q.request_id AND s.status = 'validating')
ORDER BY a.due_awake_ms LIMIT 1
