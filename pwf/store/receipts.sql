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

-- name: receipts_before
-- A page of old receipts by age, and whether the run that each names still exists.
SELECT receipt_no, scope_key, created_wall_ms, EXISTS (SELECT 1 FROM runs WHERE runs.run_id = receipts.run_id)
FROM receipts
WHERE created_wall_ms < :before_ms AND (created_wall_ms, receipt_no) > (:after_ms, :after_no)
ORDER BY created_wall_ms, receipt_no
LIMIT :limit

-- name: drop_receipt
-- An old receipt whose run is gone.
DELETE FROM receipts
WHERE scope_key = :key AND created_wall_ms < :before_ms
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = receipts.run_id)
