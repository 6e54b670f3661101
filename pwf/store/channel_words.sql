-- What people see of channels and say of messages.

-- name: one
-- One message, with its channel and what its send is called outside. One that is due waits for a channel that is down.
SELECT m.message_id, c.name, m.event, m.state, m.created_wall_ms, m.tries, m.run_id, m.request_id, e.ref, m.due_wall_ms,
  iif(m.state = 'due' AND c.state = 'down', 'the channel is down: ' || coalesce(c.trouble, 'it has ended'), m.why)
FROM channel_messages m JOIN channels c ON c.channel_no = m.channel_no LEFT JOIN effects e
  ON e.entity_no = m.channel_no AND e.node = 'message' AND e.visit = 1 AND e.part = m.message_id
WHERE m.message_id = :message_id

-- name: by_prefix
-- Messages whose id begins so. Two are enough to say that it is ambiguous.
SELECT message_id FROM channel_messages WHERE message_id >= :low AND message_id < :high ORDER BY message_id LIMIT 2

-- name: newest
-- The newest messages of a channel, with their states.
SELECT message_id, state FROM channel_messages WHERE channel_no = :channel_no ORDER BY message_no DESC LIMIT 1000

-- name: channel_of
-- Whose message it is.
SELECT c.channel_no, c.state FROM channel_messages m JOIN channels c ON c.channel_no = m.channel_no
WHERE m.message_id = :message_id

-- name: by_name
-- A channel that the configuration names.
SELECT channel_no FROM channels WHERE name = :name AND state <> 'off'

-- name: sending_test
-- A test that is being sent now.
SELECT message_id FROM channel_messages WHERE channel_no = :channel_no AND state = 'sending' AND event = 'test'

-- name: drop_tests
-- Tests of the past are of no use: people ask for another one.
DELETE FROM channel_messages WHERE channel_no = :channel_no AND event = 'test'

-- name: drop_test_effects
-- Nor are their sends.
DELETE FROM effects WHERE entity_no = :channel_no AND type = 'channel.test'
