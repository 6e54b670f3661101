-- Runs: made, found, adopted.

-- name: insert_run
-- A new run at its first node (of a fork: at the node that it goes on from), queued.
INSERT INTO runs(run_no, run_id, workflow, definition_id, environment_id, status, title, node, visit, visits, entries, steps, priority,
  input, input_crc32, input_digest, due_wall_ms, due_elapsed_ms, due_boot_id, restarted_from, restart_root, restart_no,
  forked_from, fork_node, fork_visit, tree_root, max_steps, agent, outside_name, created_wall_ms,
  called_by, call_key, call_fingerprint, session_no)
VALUES (:run_no, :run_id, :workflow, :definition_id, :environment_id, 'queued', :title, :node, :visit, :visits, :entries, :steps, :priority,
  :input, :input_crc32, :input_digest, :due_wall_ms, :due_elapsed_ms, :due_boot_id, :restarted_from, :restart_root, :restart_no,
  :forked_from, :fork_node, :fork_visit, :tree_root, :max_steps, :agent_name, :outside_name, :now,
  :called_by, :call_key, :call_fingerprint, :session_no)

-- name: facts
-- What decides whether a start adopts an existing run.
SELECT r.run_id, r.workflow, r.input, r.input_digest, r.definition_id, r.status, r.hold, r.restarted_from, r.environment_id,
  r.forked_from, e.revision, r.agent, r.max_steps, s.session_id
FROM runs r JOIN entities e ON e.entity_no = r.run_no LEFT JOIN sessions s ON s.session_no = r.session_no WHERE r.run_id = :run_id

-- name: started_by
-- The run that a start under this key has made.
SELECT run_id FROM receipts WHERE scope_key = :scope_key AND operation = 'run.start' AND run_id IS NOT NULL

-- name: add_environment
-- Runs with the same environment share its row.
INSERT INTO environments(environment_id, root, body) VALUES (:environment_id, :root, :body)

-- name: environment
-- The recorded environment of a run.
SELECT body FROM environments WHERE environment_id = :environment_id

-- name: known
-- Whether what a new run would execute is stored, and what it would execute in; whether another is due before it.
SELECT EXISTS (SELECT 1 FROM definitions WHERE definition_id = :definition_id),
  EXISTS (SELECT 1 FROM environments WHERE environment_id = :environment_id),
  EXISTS (SELECT 1 FROM run_queue WHERE state = 'later' AND due_elapsed_ms IS NULL AND is_new IN (0, 1)
    AND due_wall_ms <= :at_ms)

-- name: tree_root
-- The first run of the lineage that a run belongs to, and the agent that it hands on.
SELECT coalesce(tree_root, run_id), agent FROM runs WHERE run_id = :run_id

-- name: session
-- A session by its exact id.
SELECT session_no, session_id FROM sessions WHERE session_id = :session_id

-- name: session_of_run
-- The session that a run belongs to, which it hands on.
SELECT s.session_no, s.session_id FROM runs r JOIN sessions s ON s.session_no = r.session_no WHERE r.run_id = :run_id

-- name: open_run
-- The run of a session that goes on.
SELECT run_id FROM runs WHERE session_no = :session_no AND ended_wall_ms IS NULL

-- name: exact
-- A run by its whole id.
SELECT run_id FROM runs WHERE run_id = :run_id

-- name: by_prefix
-- Runs whose id begins so; three are enough to say that it is ambiguous.
SELECT run_id FROM runs WHERE run_id >= :low AND run_id < :high ORDER BY run_id LIMIT 4

-- name: last
-- The newest run.
SELECT run_id FROM runs ORDER BY run_no DESC LIMIT 1

-- name: last_of_status
-- The newest run that ended in one way.
SELECT run_id, run_no FROM runs WHERE status = :status ORDER BY run_no DESC LIMIT 1

-- name: last_of_project
-- The newest run of a project.
SELECT run_id FROM runs WHERE run_no = (
  SELECT max((SELECT max(r.run_no) FROM runs r WHERE r.environment_id = v.environment_id))
  FROM environments v WHERE v.root = :root)

-- name: last_of_status_of_project
-- The newest run of a project that ended in one way.
SELECT run_id, run_no FROM runs WHERE status = :status AND environment_id IN (
  SELECT v.environment_id FROM environments v WHERE v.root = :root)
ORDER BY run_no DESC LIMIT 1

-- name: called
-- Which managed resource wants a run, and how; one that is gone wants nothing any more.
SELECT called_by, call_key, call_fingerprint FROM runs WHERE run_id = :run_id
  AND NOT EXISTS (SELECT 1 FROM resources WHERE resource_no = called_by AND gone_wall_ms IS NOT NULL)
