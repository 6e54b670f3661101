-- What a run's runner reports besides its steps.

-- name: unknown_error
-- The error of the attempt whose effect is to be observed.
SELECT error FROM attempts
WHERE run_no = :run_no AND node = :node AND visit = :visit AND status = 'unknown' AND error IS NOT NULL
ORDER BY attempt DESC LIMIT 1
