-- What restore and verify ask of channels.

-- name: all_numbers
-- Every channel.
SELECT channel_no FROM channels

-- name: void_messages
-- Of a copied home: nobody knows what happened to them since.
UPDATE channel_messages SET state = 'void', due_wall_ms = NULL, token_digest = NULL, why = :why
WHERE channel_no = :channel_no AND state IN ('due', 'shown', 'closing', 'refused')

-- name: void_tokens
-- No answer to what an earlier home has sent.
UPDATE channel_messages SET token_digest = NULL WHERE channel_no = :channel_no AND token_digest IS NOT NULL

-- name: drop_happenings
-- What the earlier home may have told.
DELETE FROM happenings

-- name: stale
-- What is settled is not shown as open.
SELECT m.message_id FROM channel_messages m JOIN requests q ON q.request_id = m.request_id
WHERE m.state IN ('due', 'shown') AND q.status <> 'pending'

-- name: unbooked
-- What is being sent, has arrived or is ambiguous has a row in the ledger that says so.
SELECT m.message_id FROM channel_messages m LEFT JOIN effects e
  ON e.entity_no = m.channel_no AND e.node = 'message' AND e.visit = 1 AND e.part = m.message_id
WHERE (m.state = 'sending' AND e.status IS NOT 'applying') OR (m.state = 'ambiguous' AND e.status IS NOT 'ambiguous')
  OR (m.state IN ('shown', 'closing') AND e.status IS NOT 'applied')
  OR (m.state = 'refused' AND e.status IS NOT 'rejected')

-- name: send_stray
-- A send belongs to a message of its channel.
SELECT e.part FROM channels c JOIN effects e ON e.entity_no = c.channel_no
WHERE NOT EXISTS (SELECT 1 FROM channel_messages m WHERE m.message_id = e.part AND m.channel_no = c.channel_no)

-- name: sends_without_adapter
-- Nothing is being sent through a channel that no adapter works for.
SELECT m.message_id FROM channel_messages m JOIN channels c ON c.channel_no = m.channel_no
WHERE m.state = 'sending' AND c.state IN ('off', 'down')

-- name: due_for_ever
-- Nothing is due for a channel that is not configured.
SELECT m.message_id FROM channel_messages m JOIN channels c ON c.channel_no = m.channel_no
WHERE m.state = 'due' AND c.state = 'off'
