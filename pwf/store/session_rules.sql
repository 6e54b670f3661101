-- What verify checks of sessions: the ids of those that break a rule.

-- name: without_epoch
-- Sessions that no attach has made.
SELECT s.session_id FROM sessions s JOIN entities e ON e.entity_no = s.session_no WHERE e.generation = 0
