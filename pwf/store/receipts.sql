-- Receipts: the first outcome of a state-changing client command, committed with the command.

-- name: receipt
-- What was answered under a key.
SELECT operation, payload_digest, outcome, response, run_id, created_wall_ms
FROM receipts
WHERE scope_key = :scope_key

-- name: add_receipt
-- The outcome, in the command's own transaction.
INSERT INTO receipts (scope_key, operation, payload_digest, outcome, response, run_id, created_wall_ms)
VALUES (:scope_key, :operation, :payload_digest, :outcome, :response, :run_id, :wall_ms)

-- name: prune_receipts
-- Old receipts whose run is gone, or that name none.
DELETE FROM receipts
WHERE scope_key IN (
    SELECT r.scope_key
    FROM receipts AS r
    WHERE r.created_wall_ms < :before_wall_ms
      AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = r.run_id)
    ORDER BY r.created_wall_ms
    LIMIT :limit)
