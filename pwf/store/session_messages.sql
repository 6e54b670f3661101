-- Messages to sessions: what must reach one, seen there or not, and what counts for nothing any more.

-- name: add
-- A message more.
INSERT INTO messages(message_id, session_no, run_no, kind, request_id, request_revision, reason, why, queued_by,
  body, body_crc32, body_digest, status, is_over, created_wall_ms)
VALUES (:message_id, :session_no, :run_no, :kind, :request_id, :request_revision, :reason, :why, :queued_by,
  :body, :body_crc32, :body_digest, 'pending', 0, :now)

-- name: open_request
-- What a run asks.
SELECT request_id, kind, revision FROM requests WHERE run_id = :run_id AND status = 'pending'

-- name: is_told
-- Whether the session was told of a request as it is now.
SELECT 1 FROM messages WHERE request_id = :request_id AND request_revision = :revision LIMIT 1

-- name: is_pending
-- Whether a message about a request is still to be sent.
SELECT 1 FROM messages WHERE request_id = :request_id AND status = 'pending' LIMIT 1

-- name: is_judged
-- Whether something is being judged that was submitted for it.
SELECT 1 FROM submissions WHERE request_id = :request_id AND status = 'validating'

-- name: is_worked_on
-- Whether a turn is open about a request.
SELECT 1 FROM messages m JOIN turns t ON t.message_no = m.message_no
WHERE m.request_id = :request_id AND t.status = 'open' LIMIT 1

-- name: made
-- How many messages there were about a request at a revision for a reason: each has its own id.
SELECT count(*) FROM messages WHERE request_id = :request_id AND request_revision = :revision AND reason = :reason

-- name: withdraw
-- Messages about requests of a run count for nothing any more. What the session has stays with it until its turn is reported;
-- it is no longer right unless its request was answered.
UPDATE messages SET is_over = (sent_wall_ms IS NULL), status = CASE WHEN status = 'sent' AND EXISTS
    (SELECT 1 FROM requests q WHERE q.request_id = messages.request_id AND q.status = 'settled') THEN 'sent' ELSE 'cancelled' END
WHERE run_no = :run_no AND is_over = 0 AND request_id IS NOT NULL

-- name: lose_turns
-- Turns of a run's messages that are still open count for nothing any more.
UPDATE turns SET status = 'lost', ended_wall_ms = :now WHERE status = 'open'
  AND message_no IN (SELECT message_no FROM messages WHERE run_no = :run_no AND request_id IS NOT NULL)

-- name: requests_worked_on
-- Requests of a run whose active time is being counted.
SELECT a.request_id FROM active_intervals a JOIN requests q ON q.request_id = a.request_id WHERE q.run_id = :run_id

-- name: drop_follow_ups
-- What is queued for after a run's success is not wanted any more.
UPDATE messages SET status = 'cancelled', is_over = 1, why = :why
WHERE run_no = :run_no AND kind = 'follow_up' AND status = 'pending'

-- name: run_going_on
-- The run of a session that has not ended.
SELECT run_id FROM runs WHERE session_no = :session_no AND ended_wall_ms IS NULL

-- name: session_of
-- The session's id.
SELECT session_id FROM sessions WHERE session_no = :session_no
