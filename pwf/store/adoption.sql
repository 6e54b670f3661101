-- What a fork takes over of the run that it is forked from: the results that its steps may ask for, and nothing else.

-- name: visits_before
-- How often each node had been entered before an attempt.
SELECT node, max(visit) FROM attempts WHERE run_no = :run_no AND attempt < :before GROUP BY node

-- name: adopt
-- The latest result of each node before an attempt, and the latest that completed, numbered from 1.
INSERT INTO attempts(run_no, attempt, node, visit, tries, status, generation, started_wall_ms, ended_wall_ms, active_ms,
  output, output_crc32, output_digest, error, adopted)
SELECT :run_no, row_number() OVER (ORDER BY attempt), node, visit, tries, status, 0, started_wall_ms, ended_wall_ms, active_ms,
  output, output_crc32, output_digest, error, attempt
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
-- A run's number, its title and its counts.
SELECT run_no, title, attempts, entries FROM runs WHERE run_id = :run_id

-- name: entered
-- With which attempt an entry into an included workflow began, and whether it is the run's last one.
SELECT min(attempt), NOT EXISTS (SELECT 1 FROM attempts l WHERE l.run_no = :run_no AND l.node = :node AND l.visit > :visit)
FROM attempts WHERE run_no = :run_no AND node = :node AND visit = :visit
