-- Requests: answered once, by their id.

-- name: request
-- One request's row.
SELECT q.request_id, q.run_id, q.node, q.attempt, q.kind, q.status, q.schema, q.answer, q.answer_digest,
  q.answered_by, q.revision, q.deadline_wall_ms, q.deadline_elapsed_ms, q.deadline_boot_id, q.left_ms FROM requests q WHERE q.request_id = :request_id

-- name: by_prefix
-- Requests, answered ones too, whose id begins so, and whether they are of the kinds; those come first. Two are enough to
-- say that it is ambiguous.
SELECT request_id, kind IN (SELECT value FROM json_each(:kinds)) AS fits FROM requests
WHERE request_id >= :low AND request_id < :high ORDER BY fits DESC, request_id LIMIT 3

-- name: open_of_run
-- The question that a run waits for.
SELECT request_id FROM requests WHERE run_id = :run_id AND status = 'pending'

-- name: last_open
-- The open question that was asked last, in a project or in any; one of the kinds, if there is any.
SELECT request_id FROM requests q WHERE status = 'pending' AND (:root IS NULL OR :root = (
  SELECT v.root FROM runs r JOIN environments v ON v.environment_id = r.environment_id WHERE r.run_id = q.run_id))
ORDER BY kind IN (SELECT value FROM json_each(:kinds)) DESC, created_wall_ms DESC LIMIT 1

-- name: settle
-- The one answer. Zero rows: somebody else was first.
UPDATE requests SET status = 'settled', answer = :answer, answer_crc32 = :answer_crc32,
  answer_digest = :answer_digest, answered_by = :answered_by,
  settled_wall_ms = :now WHERE request_id = :request_id AND status = 'pending'
