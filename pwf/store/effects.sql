-- The effect ledger: what a person decides about an effect of unknown outcome.

-- name: unsettled_of_run
-- The effects of a run that are open.
SELECT node, visit, part, status FROM effects WHERE entity_no = :run_no AND status IN ('applying', 'ambiguous')

-- name: unknown_attempt
-- The attempt that left an effect unknown.
SELECT attempt FROM attempts WHERE run_no = :run_no AND node = :node AND visit = :visit AND status = 'unknown'
ORDER BY attempt DESC LIMIT 1

-- name: accept_attempt
-- A person says that it happened: the attempt has this output.
UPDATE attempts SET status = 'completed', output = :output, output_crc32 = :output_crc32,
  output_digest = :output_digest, error = NULL
WHERE run_no = :run_no AND attempt = :attempt AND status = 'unknown'

-- name: settle
-- The verdict.
UPDATE effects SET status = :status, settled_wall_ms = :now
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = :part AND status = 'ambiguous'
