-- Follow-ups: messages that a run's session is to get after its success.

-- name: counted
-- How many of a run's are queued, and how many there ever were.
SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FROM messages WHERE run_no = :run_no AND kind = 'follow_up'

-- name: one
-- One of a run's.
SELECT status, queued_by, sent_wall_ms FROM messages
WHERE message_id = :message_id AND run_no = :run_no AND kind = 'follow_up'

-- name: remove
-- One is not to be sent.
UPDATE messages SET status = 'cancelled', is_over = 1, why = :why WHERE message_id = :message_id AND status = 'pending'

-- name: of_run
-- The newest of a run's, each with the start of its text.
SELECT message_id, status, substr(json_extract(CAST(body AS TEXT), '$'), 1, :chars), queued_by, created_wall_ms, sent_wall_ms, why
FROM messages WHERE run_no = :run_no AND kind = 'follow_up' ORDER BY message_no DESC LIMIT :limit
