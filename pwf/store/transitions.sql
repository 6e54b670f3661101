-- What a runner proposes: replays and questions.

-- name: reply_of
-- The answer that a message got before, for a repeat.
SELECT verdict FROM attempts WHERE run_id = :run_id AND generation = :generation AND seq = :seq

-- name: previous_error
-- The error of the attempt whose effect was then observed.
SELECT error FROM attempts WHERE run_id = :run_id AND node = :node AND visit = :visit AND status = 'unknown'
  AND error IS NOT NULL
ORDER BY attempt DESC LIMIT 1

-- name: add_request
-- A durable question.
INSERT INTO requests(request_id, run_id, node, visit, attempt, kind, status, prompt, prompt_digest, schema,
  created_wall_ms)
VALUES (:request_id, :run_id, :node, :visit, :attempt, :kind, 'pending', :prompt, :prompt_digest, :schema, :now)

