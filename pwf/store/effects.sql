-- The effect ledger: what a person decides about an effect of unknown outcome.

-- name: ambiguous_of_run
-- Those of a run that nobody knows about.
SELECT node, visit, part FROM effects WHERE entity_no = :run_no AND status = 'ambiguous'

-- name: unknown_attempt
-- The attempt that left an effect unknown.
SELECT attempt FROM attempts WHERE run_no = :run_no AND node = :node AND visit = :visit AND status = 'unknown'
ORDER BY attempt DESC LIMIT 1

-- name: end_attempt
-- A person has said what became of the effect, and with it of the attempt.
UPDATE attempts SET status = :status, output = :output, output_crc32 = :output_crc32,
  output_digest = :output_digest, error = :error
WHERE run_no = :run_no AND attempt = :attempt AND status = 'unknown'
