-- Submissions: stored while they are judged, by an errand each; accepted or rejected once.

-- name: validating
-- The one of a request that is being judged.
SELECT s.submission_no, s.value, s.value_digest FROM submissions s
WHERE s.request_id = :request_id AND s.status = 'validating'

-- name: count_of_run
-- How many a run has had: the next one's number.
SELECT count(*) FROM submissions WHERE run_id = :run_id

-- name: add
-- It fits its type, and is to be judged.
INSERT INTO submissions(submission_no, run_id, request_id, status, value, value_crc32, value_digest, submitted_by,
  created_wall_ms)
VALUES (:submission_no, :run_id, :request_id, 'validating', :value, :value_crc32, :value_digest, :actor, :now)

-- name: heard
-- Its holder works on it.
UPDATE requests SET lost = 0 WHERE request_id = :request_id

-- name: one
-- One submission, for its errand.
SELECT s.submission_no, s.run_id, s.request_id, s.status, s.value, s.value_digest, s.submitted_by, s.errands, s.reason
FROM submissions s WHERE s.submission_no = :submission_no

-- name: state
-- What has become of one.
SELECT status, reason FROM submissions WHERE submission_no = :submission_no

-- name: due
-- The oldest after :after that no errand runs for. Nothing begins by itself in a copied home, or where a row can't be handled.
SELECT s.submission_no, e.name, e.generation, r.definition_id, r.environment_id, r.run_id
FROM submissions s INDEXED BY submissions_by_age JOIN entities e ON e.entity_no = s.submission_no
  JOIN runs r ON r.run_id = s.run_id
WHERE s.status = 'validating' AND s.submission_no > :after AND e.lease_token IS NULL AND coalesce(r.hold, '') NOT IN ('restored', 'broken')
  AND NOT EXISTS (SELECT 1 FROM runners p WHERE p.entity_no = s.submission_no)
ORDER BY s.submission_no LIMIT 1

-- name: begin
-- An errand more is told to begin.
UPDATE submissions SET errands = errands + 1 WHERE submission_no = :submission_no
