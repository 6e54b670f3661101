-- Answers that come through a channel.

-- name: by_token
-- The message whose token it is, in the channel that it was sent through; and what the answer is to be about.
SELECT m.state, m.request_id, d.digest, d.choices FROM channel_messages m
JOIN decisions d ON d.request_id = m.request_id WHERE m.token_digest = :token_digest AND m.channel_no = :channel_no
