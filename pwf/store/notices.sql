-- Notices: attempts whose output is a text for people.

-- name: note
-- The attempt that has just completed made a notice.
UPDATE attempts SET notice = :notice WHERE run_no = :run_no AND attempt = :attempt AND status = 'completed'

-- name: newest
-- A page of all runs' notices, the newest first.
SELECT r.run_id, r.workflow, r.title, a.node, a.visit, a.attempt, a.notice, a.output, a.output_digest, a.ended_wall_ms, a.run_no
FROM attempts a INDEXED BY attempts_notices JOIN runs r ON r.run_no = a.run_no
WHERE a.notice IS NOT NULL AND (a.ended_wall_ms, a.run_no, a.attempt) < (:at, :number, :attempt)
ORDER BY a.ended_wall_ms DESC, a.run_no DESC, a.attempt DESC LIMIT :limit

-- name: of_run
-- A page of one run's notices, the newest first.
SELECT r.run_id, r.workflow, r.title, a.node, a.visit, a.attempt, a.notice, a.output, a.output_digest, a.ended_wall_ms, a.run_no
FROM attempts a JOIN runs r ON r.run_no = a.run_no
WHERE a.run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND a.notice IS NOT NULL AND a.attempt < :attempt
ORDER BY a.attempt DESC LIMIT :limit

-- name: one
-- The notice of one attempt.
SELECT r.run_id, r.workflow, r.title, a.node, a.visit, a.attempt, a.notice, a.output, a.output_digest, a.ended_wall_ms, a.run_no
FROM attempts a JOIN runs r ON r.run_no = a.run_no
WHERE a.run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND a.attempt = :attempt AND a.notice IS NOT NULL
