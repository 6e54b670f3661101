-- Pause, resume, cancel.

-- name: open_request
-- The question that a run waits for.
SELECT request_id, kind FROM requests WHERE run_id = :run_id AND status = 'pending'

-- name: raise_request
-- Its run was resumed: what is submitted for an earlier revision comes too late. What is being judged, the verdict decides.
UPDATE requests SET revision = revision + 1, lost = 0 WHERE run_id = :run_id AND status = 'pending'
  AND NOT EXISTS (SELECT 1 FROM submissions s WHERE s.request_id = requests.request_id AND s.status = 'validating')
