-- One reconcile: what its process is told.

-- name: told
-- What has woken it is told; what wakes it from here on is another reconcile's.
UPDATE reconcile_queue SET reasons = CAST('[]' AS BLOB), woken = 0 WHERE resource_no = :resource_no
