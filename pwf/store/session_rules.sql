-- What verify checks of sessions: the ids of those, and of their runs, that break a rule.

-- name: without_epoch
-- Sessions that no attach has made.
SELECT s.session_id FROM sessions s JOIN entities e ON e.entity_no = s.session_no WHERE e.generation = 0

-- name: untold
-- Runs that wait for their session, which was never told of the request as it is now, though nothing of it is being judged.
SELECT r.run_id FROM requests q JOIN runs r ON r.run_id = q.run_id
WHERE q.status = 'pending' AND q.kind IN (SELECT value FROM json_each('{KINDS}')) AND r.session_no IS NOT NULL
  AND r.status = 'waiting' AND r.hold IS NULL
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.request_id = q.request_id AND m.request_revision = q.revision)
  AND NOT EXISTS (SELECT 1 FROM submissions s WHERE s.request_id = q.request_id AND s.status = 'validating')

-- name: stalled
-- Runs that wait for their session, with nothing that is to be sent, that it has, or that is being judged.
SELECT r.run_id FROM requests q JOIN runs r ON r.run_id = q.run_id
WHERE q.status = 'pending' AND q.kind IN (SELECT value FROM json_each('{KINDS}')) AND r.session_no IS NOT NULL
  AND r.status = 'waiting' AND r.hold IS NULL
  AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.request_id = q.request_id AND m.is_over = 0)
  AND NOT EXISTS (SELECT 1 FROM submissions s WHERE s.request_id = q.request_id AND s.status = 'validating')

-- name: step_stray
-- Runs of which a step is still to be sent whose request is not open, or is at another revision by now.
SELECT r.run_id FROM messages m JOIN runs r ON r.run_no = m.run_no JOIN requests q ON q.request_id = m.request_id
WHERE m.status = 'pending' AND (q.status <> 'pending' OR q.revision <> m.request_revision)

-- name: end_untold
-- Runs that have ended, and whose session was never told so; or the other way round.
SELECT r.run_id FROM runs r LEFT JOIN messages m ON m.run_no = r.run_no AND m.kind = 'terminal'
WHERE r.session_no IS NOT NULL AND (r.ended_wall_ms IS NULL) <> (m.message_no IS NULL)

-- name: follow_up_early
-- Runs of which a follow-up was sent before they succeeded and the turn about that was over.
SELECT r.run_id FROM messages m JOIN runs r ON r.run_no = m.run_no
WHERE m.kind = 'follow_up' AND m.sent_wall_ms IS NOT NULL AND (r.status <> 'completed'
  OR NOT EXISTS (SELECT 1 FROM messages t WHERE t.run_no = m.run_no AND t.kind = 'terminal' AND t.is_over = 1))

-- name: follow_up_kept
-- Runs that have ended without success, and of which a follow-up is queued.
SELECT r.run_id FROM messages m JOIN runs r ON r.run_no = m.run_no
WHERE m.kind = 'follow_up' AND m.status = 'pending' AND r.ended_wall_ms IS NOT NULL AND r.status <> 'completed'

-- name: elsewhere
-- Runs with a message or a turn that is not their session's.
SELECT r.run_id FROM messages m JOIN runs r ON r.run_no = m.run_no LEFT JOIN turns t ON t.message_no = m.message_no
WHERE r.session_no IS NOT m.session_no OR t.session_no <> m.session_no

-- name: turn_stray
-- Runs with a turn that goes on about a message of which nothing more comes.
SELECT r.run_id FROM turns t JOIN messages m ON m.message_no = t.message_no JOIN runs r ON r.run_no = m.run_no
WHERE t.status = 'open' AND m.is_over = 1

-- name: clock_stray
-- Runs whose time is counted though nobody works on them: no turn goes on, or its session is not connected.
SELECT q.run_id FROM active_intervals a JOIN requests q ON q.request_id = a.request_id
  JOIN sessions s ON s.session_no = a.session_no JOIN runs r ON r.run_id = q.run_id
WHERE s.connected = 0 OR q.status <> 'pending' OR r.hold IS NOT NULL
  OR NOT EXISTS (SELECT 1 FROM turns t JOIN messages m ON m.message_no = t.message_no
    WHERE t.status = 'open' AND t.session_no = a.session_no AND m.request_id = a.request_id)

-- name: segment_gap
-- Runs with a segment whose entries are not those that it counts, or that has no session.
SELECT r.run_id FROM segments g JOIN runs r ON r.run_no = g.run_no LEFT JOIN session_entries e
  ON e.run_no = g.run_no AND e.segment = g.segment
GROUP BY g.run_no, g.segment
HAVING r.session_no IS NULL OR count(e.number) <> g.next_number - g.first_number OR coalesce(sum(length(e.body)), 0) <> g.bytes
  OR coalesce(min(e.number), g.first_number) <> g.first_number OR coalesce(max(e.number) + 1, g.next_number) <> g.next_number

-- name: entry_stray
-- Runs with an entry of a segment that there is not.
SELECT r.run_id FROM session_entries e JOIN runs r ON r.run_no = e.run_no
  LEFT JOIN segments g ON g.run_no = e.run_no AND g.segment = e.segment WHERE g.run_no IS NULL
