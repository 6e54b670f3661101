-- A change of a run, saved once.

-- name: save_position
-- The hot path: no indexed column among these.
UPDATE runs SET title = :title, node = :node, visit = :visit, visits = :visits, entries = :entries, steps = :steps, attempts = :attempts,
  tries = :tries, failures = :failures, crashes = :crashes, observe = :observe, seq = :seq,
  pause_requested = :pause_requested
WHERE run_no = :run_no

-- name: save_all
-- The same, and where the run stands, when that has changed.
UPDATE runs SET title = :title, node = :node, visit = :visit, visits = :visits, entries = :entries, steps = :steps, attempts = :attempts,
  tries = :tries, failures = :failures, crashes = :crashes, observe = :observe, seq = :seq,
  pause_requested = :pause_requested, status = :status, hold = :hold, hold_detail = :hold_detail,
  due_wall_ms = :due_wall_ms, due_elapsed_ms = :due_elapsed_ms, due_boot_id = :due_boot_id,
  started_wall_ms = :started_wall_ms, reason = :reason
WHERE run_no = :run_no
