-- What keeps channels from showing a question.

-- name: of_request
-- How the messages about a request stand, and their channels.
SELECT c.name, c.state, c.trouble, m.state, m.why FROM channel_messages m JOIN channels c ON c.channel_no = m.channel_no
WHERE m.request_id = :request_id ORDER BY m.message_no LIMIT 20

-- name: in_trouble
-- Channels that are configured and do not work as they should.
SELECT name, state, coalesce(trouble, 'its adapter has ended') FROM channels
WHERE state = 'down' OR (state = 'up' AND trouble IS NOT NULL) ORDER BY channel_no

-- name: ambiguous
-- The oldest messages that wait for a person.
SELECT c.name, m.message_id FROM channel_messages m JOIN channels c ON c.channel_no = m.channel_no
WHERE m.state = 'ambiguous' ORDER BY m.message_no LIMIT 5

-- name: named
-- A channel, by its name.
SELECT 1 FROM channels WHERE name = :name
