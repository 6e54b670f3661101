-- What a runner proposes: replays and questions.

-- name: reply_of
-- The answer that a message got before, for a repeat.
SELECT verdict, said FROM attempts WHERE run_no = :run_no AND generation = :generation AND seq = :seq

-- name: add_request
-- A durable question. Its clock goes when the run is placed to wait for it.
INSERT INTO requests(request_id, run_id, node, visit, attempt, kind, status, prompt, prompt_crc32,
  prompt_digest, schema, default_answer, default_answer_crc32, left_ms, created_wall_ms)
VALUES (:request_id, :run_id, :node, :visit, :attempt, :kind, 'pending', :prompt, :prompt_crc32,
  :prompt_digest, :schema, :default_answer, :default_answer_crc32, :left_ms, :now)

