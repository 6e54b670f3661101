-- What recovery and verify ask of submissions, and their verdict.

-- name: entity
-- Whose errand it is, and how it stands.
SELECT e.generation, e.lease_token, s.status, s.run_id, s.errands FROM entities e
  JOIN submissions s ON s.submission_no = e.entity_no WHERE e.entity_no = :submission_no

-- name: asked
-- What it was submitted for.
SELECT q.run_id, q.request_id, q.node, q.revision FROM submissions s JOIN requests q ON q.request_id = s.request_id
WHERE s.submission_no = :submission_no

-- name: judged
-- The verdict, once.
UPDATE submissions SET status = :status, reason = :reason, judged_wall_ms = :now
WHERE submission_no = :submission_no AND status = 'validating'

-- name: unattended
-- Those whose errand has no process that stands for it.
SELECT s.submission_no, e.name, e.generation FROM entities e JOIN submissions s ON s.submission_no = e.entity_no
WHERE e.lease_owner IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runners p WHERE p.entity_no = e.entity_no)

-- name: stray
-- What is being judged belongs to an open request.
SELECT e.name FROM submissions s JOIN entities e ON e.entity_no = s.submission_no
JOIN requests q ON q.request_id = s.request_id WHERE s.status = 'validating' AND q.status <> 'pending'

-- name: lost
-- What was accepted is the answer of its request.
SELECT e.name FROM submissions s JOIN entities e ON e.entity_no = s.submission_no
JOIN requests q ON q.request_id = s.request_id WHERE s.status = 'accepted'
  AND (q.status <> 'settled' OR q.answer IS NOT s.value OR q.answer_digest IS NOT s.value_digest)
