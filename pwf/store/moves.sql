-- The few writes that every move of a run is made of.

-- name: begin_attempt
-- One try at the present visit.
INSERT INTO attempts(run_no, attempt, node, visit, tries, status, generation, started_wall_ms, observed, counted_from)
VALUES (:run_no, :attempt, :node, :visit, :tries, 'active', :generation, :started, :observing, :counted_from)

-- name: whole_attempt
-- One try that began and ended in the same command.
INSERT INTO attempts(run_no, attempt, node, visit, tries, status, generation, started_wall_ms, ended_wall_ms, active_ms,
  output, output_crc32, output_digest, error, seq, verdict, said, observed, counted_from)
VALUES (:run_no, :attempt, :node, :visit, :tries, :status, :generation, :started, :now, :active_ms,
  :output, :output_crc32, :output_digest, :error, :seq, :verdict, :said, coalesce(:observed, :observing), :counted_from)

-- name: end_attempt
-- The outcome of the active attempt; zero rows when it has ended already.
UPDATE attempts SET status = :status, ended_wall_ms = :now, active_ms = max(active_ms, :active_ms), output = :output,
  output_crc32 = :output_crc32, output_digest = :output_digest, error = :error, seq = :seq, verdict = :verdict, said = :said,
  observed = coalesce(:observed, observed)
WHERE run_no = :run_no AND attempt = :attempt AND status = 'active'

-- name: note_said
-- A question or a timer: its attempt goes on, with the message that asked for it.
UPDATE attempts SET seq = :seq, verdict = 'park', said = :said WHERE run_no = :run_no AND attempt = :attempt

-- name: note_traces
-- What an attempt leaves besides its outcome: how much of what it printed is kept, and what outlived it.
UPDATE attempts SET printed = :printed, survivors = :survivors WHERE run_no = :run_no AND attempt = :attempt

-- name: active_attempt
-- The attempt that is going on, if one is.
SELECT attempt, started_wall_ms FROM attempts WHERE run_no = :run_no AND status = 'active'

-- name: reserve_effect
-- The ledger's row, before the outside world is touched. A try that was settled leaves nothing to the next one.
INSERT INTO effects(entity_no, node, visit, type, mode, status, generation, attempts, reserved_wall_ms)
VALUES (:entity_no, :node, :visit, :type, :mode, 'applying', :generation, 1, :now)
ON CONFLICT(entity_no, node, visit, part) DO UPDATE SET status = 'applying', generation = :generation, attempts = attempts + 1,
  settled_wall_ms = NULL, settled_by = NULL, note = NULL, ref = NULL

-- name: settle_effect
-- How the effect ended.
UPDATE effects SET status = :status, ref = coalesce(:ref, ref), settled_wall_ms = :settled
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = ''

-- name: close_effects
-- The run is over: what was being applied may have happened. By hand it is ambiguous; otherwise it has failed.
UPDATE effects SET
  status = CASE WHEN mode = 'manual' THEN 'ambiguous' ELSE 'failed' END,
  settled_wall_ms = CASE WHEN mode = 'manual' THEN NULL ELSE :now END
WHERE entity_no = :entity_no AND status = 'applying'

-- name: close_request
-- The run is over: its question leaves every inbox.
UPDATE requests SET status = 'cancelled', settled_wall_ms = :now WHERE run_id = :run_id AND status = 'pending'

-- name: end_submissions
-- The run is over: what was submitted for it is judged no more.
UPDATE submissions SET status = 'rejected', reason = 'its run has ended', judged_wall_ms = :now
WHERE run_id = :run_id AND status = 'validating'

-- name: save_end
-- The terminal facts, written once.
UPDATE runs SET status = :status, hold = NULL, hold_detail = NULL, reason = :reason, ended_wall_ms = :now,
  output = :output, output_crc32 = :output_crc32, output_digest = :output_digest, error = :error, due_wall_ms = NULL, due_elapsed_ms = NULL,
  due_boot_id = NULL, pause_requested = 0, started_wall_ms = :started_wall_ms
WHERE run_no = :run_no AND ended_wall_ms IS NULL

-- name: clear_deaths
-- No daemon has died over the run since its last progress.
UPDATE runs SET daemon_deaths = 0 WHERE run_no = :run_no
