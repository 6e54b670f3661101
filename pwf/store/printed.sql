-- What the attempts of a run have printed.

-- name: printed
-- The newest attempts, all or those of one node or one number, with how much was kept of what they printed.
SELECT attempt, node, visit, tries, status, printed FROM attempts
WHERE run_no = :run_no AND adopted IS NULL AND (:attempt IS NULL OR attempt = :attempt) AND (:node IS NULL OR node = :node)
ORDER BY attempt DESC LIMIT :limit
