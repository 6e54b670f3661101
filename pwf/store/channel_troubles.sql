-- What keeps channels from showing a question.

-- name: of_request
-- How the messages about a request stand, and their channels.
SELECT c.name, c.state, c.trouble, m.state, m.why FROM channel_messages m JOIN channels c ON c.channel_no = m.channel_no
WHERE m.request_id = :request_id ORDER BY m.message_no LIMIT 20
