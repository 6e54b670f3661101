-- Messages of channels: made of what happened, due, sent as effects, closed.

-- name: happened
-- What is to be told and was not made into messages, oldest first.
SELECT happening_no, event, run_id, request_id, attempt FROM happenings ORDER BY happening_no LIMIT :limit

-- name: told
-- It has become messages.
DELETE FROM happenings WHERE happening_no = :happening_no

-- name: asked
-- Of what kind a question is, and who is to decide.
SELECT q.kind, d.audience FROM requests q LEFT JOIN decisions d ON d.request_id = q.request_id
WHERE q.request_id = :request_id

-- name: add
-- A message that is due. Of a decision there is one for each channel.
INSERT OR IGNORE INTO channel_messages(
  message_id, channel_no, event, run_id, request_id, attempt, state, due_wall_ms, created_wall_ms)
VALUES (:message_id, :channel_no, :event, :run_id, :request_id, :attempt, 'due', :due, :now)

-- name: not_shown
-- Open decisions of which a channel has no message, in order, from a place on. What is held as restored is shown once it goes on.
SELECT q.request_id, q.run_id, d.audience, q.created_wall_ms FROM requests q JOIN decisions d ON d.request_id = q.request_id
WHERE q.status = 'pending' AND (q.created_wall_ms, q.request_id) > (:after_ms, :after_id)
  AND NOT EXISTS (SELECT 1 FROM channel_messages m WHERE m.request_id = q.request_id AND m.channel_no = :channel_no
    AND m.event = 'decide' AND m.state <> 'void')
  AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = q.run_id AND r.hold = 'restored')
ORDER BY q.created_wall_ms, q.request_id LIMIT :limit

-- name: next_due
-- What the channel does next.
SELECT m.message_id, m.event, m.run_id, m.request_id, m.attempt, m.state, m.tries, m.early, m.due_wall_ms, e.ref
FROM channel_messages m LEFT JOIN effects e
  ON e.entity_no = m.channel_no AND e.node = 'message' AND e.visit = 1 AND e.part = m.message_id
WHERE m.channel_no = :channel_no AND m.state IN ('due', 'closing') ORDER BY m.due_wall_ms LIMIT 1

-- name: message
-- One message.
SELECT channel_no, request_id, state, tries, early FROM channel_messages WHERE message_id = :message_id

-- name: sending
-- It is sent now, with a token of its own.
UPDATE channel_messages SET state = 'sending', tries = tries + 1, due_wall_ms = NULL, token_digest = :token_digest
WHERE message_id = :message_id

-- name: closing
-- It is closed now; if nothing is heard of that, again later.
UPDATE channel_messages SET tries = tries + 1, due_wall_ms = :due WHERE message_id = :message_id

-- name: came_early
-- Nobody was reached by this try: no bound counts it.
UPDATE channel_messages SET early = early + 1 WHERE message_id = :message_id

-- name: move
-- Where it stands from now on.
UPDATE channel_messages SET state = :state, due_wall_ms = :due, why = :why, tries = iif(:anew, 0, tries),
  early = iif(:anew, 0, early) WHERE message_id = :message_id

-- name: take_up
-- What was refused was surely not sent: while it is asked, whoever begins anew tries anew.
UPDATE channel_messages SET state = 'due', due_wall_ms = :now, tries = 0, early = 0
WHERE channel_no = :channel_no AND state = 'refused' AND request_id IN (
  SELECT q.request_id FROM requests q JOIN runs r ON r.run_id = q.run_id
  WHERE q.status = 'pending' AND r.hold IS NOT 'restored')

-- name: gone_effects
-- What a process has shown that has ended, and what was with it: it is shown anew.
UPDATE effects SET status = 'rejected', settled_wall_ms = :now WHERE entity_no = :channel_no AND node = 'message' AND visit = 1
  AND status IN ('applied', 'ambiguous') AND part IN (
    SELECT m.message_id FROM requests q JOIN runs r ON r.run_id = q.run_id JOIN channel_messages m ON m.request_id = q.request_id
    WHERE q.status = 'pending' AND r.hold IS NOT 'restored' AND m.channel_no = :channel_no
      AND m.state IN ('shown', 'ambiguous'))

-- name: show_anew
-- The messages of these are due.
UPDATE channel_messages SET state = 'due', due_wall_ms = :now, tries = 0, early = 0, why = :why
WHERE channel_no = :channel_no AND state IN ('shown', 'ambiguous') AND request_id IN (
  SELECT q.request_id FROM requests q JOIN runs r ON r.run_id = q.run_id
  WHERE q.status = 'pending' AND r.hold IS NOT 'restored')

-- name: reserve
-- A send, before the outside world is touched.
INSERT INTO effects(entity_no, node, visit, part, type, mode, status, generation, attempts, request, request_crc32, fingerprint,
  reserved_wall_ms)
VALUES (:channel_no, 'message', 1, :message_id, :type, 'manual', 'applying', :epoch, 1, :request, :request_crc32, :fingerprint,
  :now)
ON CONFLICT(entity_no, node, visit, part) DO UPDATE SET status = 'applying', generation = :epoch, attempts = attempts + 1,
  ref = NULL, error = NULL, settled_by = NULL, note = NULL, settled_wall_ms = NULL

-- name: settle
-- What became of a send.
UPDATE effects SET status = :status, ref = :ref, error = :error, settled_wall_ms = :settled, settled_by = :by
WHERE entity_no = :channel_no AND node = 'message' AND visit = 1 AND part = :message_id

-- name: is_open
-- Whether a request still waits.
SELECT status = 'pending' FROM requests WHERE request_id = :request_id

-- name: reminders
-- Whose decision it is, how often a channel was to remind of it, and whether something of it is on its way there.
SELECT max(run_id), coalesce(sum(event = 'remind'), 0), coalesce(max(state IN ('due', 'sending')), 0)
FROM channel_messages WHERE request_id = :request_id AND channel_no = :channel_no

-- name: open_here
-- Open decisions of which nobody knows whether the channel has shown them.
SELECT DISTINCT m.request_id FROM channel_messages m JOIN requests q ON q.request_id = m.request_id
WHERE m.state = 'ambiguous' AND m.channel_no = :channel_no AND q.status = 'pending'
