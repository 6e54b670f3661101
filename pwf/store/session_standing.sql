-- How the session of a run stands.

-- name: standing
-- The session, its turn about the run, and what of it is still to be sent.
SELECT s.session_id, s.connected, s.reported, s.seen_wall_ms,
  (SELECT min(t.started_wall_ms) FROM turns t JOIN messages m ON m.message_no = t.message_no
    WHERE t.session_no = s.session_no AND t.status = 'open' AND m.run_no = :run_no),
  EXISTS (SELECT 1 FROM messages m WHERE m.run_no = :run_no AND m.kind = 'step' AND m.status = 'pending'),
  (SELECT count(*) FROM messages m WHERE m.run_no = :run_no AND m.kind = 'follow_up' AND m.status = 'pending')
FROM sessions s WHERE s.session_no = :session_no
