-- What a fork takes over of the run that it is forked from: the results that its steps may ask for, and nothing else.

-- name: visits_before
-- How often each node had been entered before an attempt.
SELECT node, max(visit) FROM attempts WHERE run_no = :run_no AND attempt < :before GROUP BY node

-- name: adopt
-- The latest result of each node before an attempt, and the latest that completed, numbered from 1.
INSERT INTO attempts(run_no, attempt, node, visit, tries, status, generation, started_wall_ms, ended_wall_ms, active_ms,
  output, output_crc32, output_digest, error, adopted, counted_from)
SELECT :run_no, row_number() OVER (ORDER BY attempt), node, visit, tries, status, 0, started_wall_ms, ended_wall_ms, active_ms,
  output, output_crc32, output_digest, error, attempt, counted_from
FROM attempts WHERE run_no = :old_no AND attempt IN (
  SELECT max(attempt) FROM attempts WHERE run_no = :old_no AND attempt < :before
    AND status IN ('completed', 'failed', 'timed_out', 'cancelled') GROUP BY node
  UNION
  SELECT max(attempt) FROM attempts WHERE run_no = :old_no AND attempt < :before AND status = 'completed' GROUP BY node)
ORDER BY attempt

-- name: adopted
-- What was taken over, in order.
SELECT node, visit FROM attempts WHERE run_no = :run_no AND adopted IS NOT NULL ORDER BY attempt

-- name: count_adopted
-- Its own attempts are numbered on from there.
UPDATE runs SET attempts = :attempts WHERE run_no = :run_no

-- name: number_of
-- A run's number, its title and its attempts.
SELECT run_no, title, attempts FROM runs WHERE run_id = :run_id

-- name: counted_from
-- What an included workflow counts from since an entry.
SELECT counted_from FROM attempts WHERE run_no = :run_no AND node = :node AND visit = :visit AND counted_from IS NOT NULL LIMIT 1
