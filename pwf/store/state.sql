-- A run's mutable state: loaded once per command, changed in memory, saved once.

-- name: load
-- Everything that a move may look at, with the entity's counters.
SELECT r.run_no, r.run_id, r.workflow, r.definition_id, r.environment_id, r.status, r.hold, r.hold_detail, r.pause_requested,
  r.title, r.node, r.visit, r.visits, r.steps, r.attempts, r.tries, r.failures, r.crashes, r.observe, r.seq, r.priority,
  r.due_wall_ms, r.due_elapsed_ms, r.due_boot_id, r.started_wall_ms, r.reason, e.revision, e.generation, e.lease_token
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.run_id = :run_id

-- name: save_position
-- The hot path: no indexed column among these.
UPDATE runs SET title = :title, node = :node, visit = :visit, visits = :visits, steps = :steps, attempts = :attempts,
  tries = :tries, failures = :failures, crashes = :crashes, observe = :observe, seq = :seq,
  pause_requested = :pause_requested
WHERE run_no = :run_no

-- name: save_all
-- The same, and where the run stands, when that has changed.
UPDATE runs SET title = :title, node = :node, visit = :visit, visits = :visits, steps = :steps, attempts = :attempts,
  tries = :tries, failures = :failures, crashes = :crashes, observe = :observe, seq = :seq,
  pause_requested = :pause_requested, status = :status, hold = :hold, hold_detail = :hold_detail,
  due_wall_ms = :due_wall_ms, due_elapsed_ms = :due_elapsed_ms, due_boot_id = :due_boot_id,
  started_wall_ms = :started_wall_ms, reason = :reason
WHERE run_no = :run_no

-- name: save_end
-- The terminal facts, written once.
UPDATE runs SET status = :status, hold = NULL, hold_detail = NULL, reason = :reason, ended_wall_ms = :now,
  output = :output, output_digest = :output_digest, error = :error, due_wall_ms = NULL, due_elapsed_ms = NULL,
  due_boot_id = NULL, pause_requested = 0, started_wall_ms = :started_wall_ms
WHERE run_no = :run_no AND ended_wall_ms IS NULL

-- name: graph
-- A definition's graph, as JSON.
SELECT graph FROM definitions WHERE definition_id = :definition_id
