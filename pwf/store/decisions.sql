-- Decisions: what is open, what is known of one, who has won.

-- name: of_status
-- Decisions whose request has this status, oldest first.
SELECT d.request_id FROM requests q JOIN decisions d ON d.request_id = q.request_id
WHERE q.status = :status ORDER BY q.created_wall_ms LIMIT :limit

-- name: last_of_run
-- The decision that a run asked last.
SELECT d.request_id FROM requests q JOIN decisions d ON d.request_id = q.request_id
WHERE q.run_id = :run_id ORDER BY q.created_wall_ms DESC LIMIT 1

-- name: facts
-- What is asked. The subject stays where it is.
SELECT d.title, d.audience, d.choices, d.digest, d.open_ms, d.earlier_id, q.visit
FROM decisions d JOIN requests q ON q.request_id = d.request_id WHERE d.request_id = :request_id

-- name: answers
-- Every answer that was kept.
SELECT provenance, won, who, channel, at_wall_ms, choice, text, why_not FROM answers
WHERE request_id = :request_id ORDER BY answer_no

-- name: winner
-- The one that has won.
SELECT provenance, won, who, channel, at_wall_ms, choice, text, why_not FROM answers
WHERE request_id = :request_id AND won = 1
