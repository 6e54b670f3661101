-- name: load
-- Everything that a move may look at, with the entity's counters.
SELECT r.run_no, r.run_id, r.workflow, r.definition_id, r.environment_id, r.status, r.hold, r.hold_detail, r.pause_requested,
  r.title, r.node, r.visit, r.visits, r.entries, r.steps, r.attempts, r.tries, r.failures, r.crashes, r.daemon_deaths, r.observe, r.seq,
  r.priority, r.max_steps, r.agent, r.session_no,
  r.due_wall_ms, r.due_elapsed_ms, r.due_boot_id, r.started_wall_ms, r.reason, r.called_by, e.revision, e.generation, e.lease_token
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.run_id = :run_id

-- name: graph
-- A definition's graph, as JSON.
SELECT graph FROM definitions WHERE definition_id = :definition_id

-- name: visits_of
-- The entries of each node of a run, by its attempts.
SELECT node, max(visit) FROM attempts WHERE run_no = :run_no GROUP BY node
