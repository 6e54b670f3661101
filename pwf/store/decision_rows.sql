-- Decisions and answers: rows that are written where a request is asked, settled or closed.

-- name: earlier
-- What the same node of the run proposed last.
SELECT d.request_id FROM requests q JOIN decisions d ON d.request_id = q.request_id
WHERE q.run_id = :run_id AND q.node = :node AND q.attempt < :attempt ORDER BY q.attempt DESC LIMIT 1

-- name: add
-- What a person is asked to decide, beside its request.
INSERT INTO decisions(request_id, title, audience, subject, subject_crc32, choices, open_ms, digest, earlier_id)
VALUES (:request_id, :title, :audience, :subject, :subject_crc32, :choices, :open_ms, :digest, :earlier_id)

-- name: add_answer
-- An answer. A second one that has won breaks the index.
INSERT INTO answers(request_id, answer_no, provenance, who, channel, digest, choice, text, won, why_not, at_wall_ms)
VALUES (:request_id, (SELECT count(*) + 1 FROM answers WHERE request_id = :request_id), :provenance, :who, :channel,
  :digest, :choice, :text, :won, :why_not, :now)

-- name: answers_of
-- How many answers were given.
SELECT count(*) FROM answers WHERE request_id = :request_id

-- name: closed
-- The decision of a run that has just ended, if its request was closed with it.
SELECT d.request_id FROM requests q JOIN decisions d ON d.request_id = q.request_id
WHERE q.run_id = :run_id AND q.status = 'cancelled'
  AND NOT EXISTS (SELECT 1 FROM answers a WHERE a.request_id = d.request_id AND a.won = 1)
