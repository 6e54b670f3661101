-- What a session reports: messages that it was seen to have, and turns.

-- name: reported
-- What it said of itself.
UPDATE sessions SET reported = 1, idle = :idle, seen_wall_ms = :now WHERE session_no = :session_no

-- name: seen
-- It was heard of.
UPDATE sessions SET seen_wall_ms = :now WHERE session_no = :session_no

-- name: evidence
-- The session has a message. One that was withdrawn before is over as soon as no turn goes on; a follow-up at once.
UPDATE messages SET sent_wall_ms = :now, status = 'sent',
  is_over = (status = 'cancelled' AND (:idle OR kind = 'follow_up')) OR NOT :starts_turn
WHERE message_no = :message_no AND sent_wall_ms IS NULL

-- name: message
-- A message of a session, with what it is about. A follow-up is one once it is due.
SELECT m.message_no, m.message_id, m.kind, m.is_over, m.request_id, m.request_revision, r.run_id
FROM messages m JOIN runs r ON r.run_no = m.run_no
WHERE m.message_id = :message_id AND m.session_no = :session_no AND (m.kind <> 'follow_up' OR (r.status = 'completed'
    AND EXISTS (SELECT 1 FROM messages t WHERE t.run_no = m.run_no AND t.kind = 'terminal' AND t.is_over = 1)))

-- name: unturned
-- Messages that the session has, and about which it has no turn.
SELECT m.message_id FROM messages m WHERE m.session_no = :session_no AND m.is_over = 0 AND m.sent_wall_ms IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM turns t WHERE t.message_no = m.message_no AND t.status = 'open')

-- name: is_worked_on
-- Whether a turn about a message goes on.
SELECT 1 FROM turns WHERE message_no = :message_no AND status = 'open'

-- name: over
-- Nothing more comes of a message.
UPDATE messages SET is_over = 1 WHERE message_no = :message_no

-- name: turn
-- A turn, by the id that the session gave it.
SELECT t.status, m.message_id FROM turns t JOIN messages m ON m.message_no = t.message_no
WHERE t.session_no = :session_no AND t.turn_id = :turn_id

-- name: open_turns
-- Turns that go on.
SELECT t.turn_id, m.message_id FROM turns t JOIN messages m ON m.message_no = t.message_no
WHERE t.session_no = :session_no AND t.status = 'open'

-- name: add_turn
-- A turn that was reported.
INSERT INTO turns(session_no, turn_id, message_no, status, started_wall_ms, ended_wall_ms)
VALUES (:session_no, :turn_id, :message_no, :status, :now, CASE WHEN :status <> 'open' THEN :now END)

-- name: end_turn
-- How a turn ended.
UPDATE turns SET status = :status, ended_wall_ms = coalesce(ended_wall_ms, :now)
WHERE session_no = :session_no AND turn_id = :turn_id

-- name: request
-- What decides whether a step still counts.
SELECT status, revision, reminders, lost FROM requests WHERE request_id = :request_id

-- name: reminded
-- One reminder more.
UPDATE requests SET reminders = reminders + 1 WHERE request_id = :request_id

-- name: one_more_lost
-- A turn about it was lost.
UPDATE requests SET lost = lost + 1 WHERE request_id = :request_id

-- name: not_lost
-- A turn about it came to an end that was reported.
UPDATE requests SET lost = 0 WHERE request_id = :request_id

-- name: give_up
-- Nothing was submitted for it.
UPDATE requests SET status = 'cancelled', answered_by = :by, settled_wall_ms = :now
WHERE request_id = :request_id AND status = 'pending'
