-- What lists and single-run views are read from.

-- name: page
-- Newest first, all statuses.
SELECT r.run_no, r.run_id, r.workflow, r.title, r.status, r.hold, r.hold_detail, r.node, r.created_wall_ms,
  r.started_wall_ms, r.ended_wall_ms, r.due_wall_ms, r.reason, r.steps, r.restarted_from, r.restart_root, r.restart_no, r.forked_from,
  e.revision, e.generation,
  (SELECT q.request_id FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending'),
  (SELECT n.run_id FROM runs n WHERE n.run_no = max(
    coalesce((SELECT run_no FROM runs WHERE restarted_from = r.run_id), 0),
    coalesce((SELECT max(run_no) FROM runs WHERE forked_from = r.run_id), 0)))
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.run_no < :before ORDER BY r.run_no DESC LIMIT :limit

-- name: page_of_workflow
-- Newest first, of one workflow.
SELECT r.run_no, r.run_id, r.workflow, r.title, r.status, r.hold, r.hold_detail, r.node, r.created_wall_ms,
  r.started_wall_ms, r.ended_wall_ms, r.due_wall_ms, r.reason, r.steps, r.restarted_from, r.restart_root, r.restart_no, r.forked_from,
  e.revision, e.generation,
  (SELECT q.request_id FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending'),
  (SELECT n.run_id FROM runs n WHERE n.run_no = max(
    coalesce((SELECT run_no FROM runs WHERE restarted_from = r.run_id), 0),
    coalesce((SELECT max(run_no) FROM runs WHERE forked_from = r.run_id), 0)))
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.workflow = :workflow AND r.run_no < :before ORDER BY r.run_no DESC LIMIT :limit

-- name: page_of_status
-- Newest first, of one stored status.
SELECT r.run_no, r.run_id, r.workflow, r.title, r.status, r.hold, r.hold_detail, r.node, r.created_wall_ms,
  r.started_wall_ms, r.ended_wall_ms, r.due_wall_ms, r.reason, r.steps, r.restarted_from, r.restart_root, r.restart_no, r.forked_from,
  e.revision, e.generation,
  (SELECT q.request_id FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending'),
  (SELECT n.run_id FROM runs n WHERE n.run_no = max(
    coalesce((SELECT run_no FROM runs WHERE restarted_from = r.run_id), 0),
    coalesce((SELECT max(run_no) FROM runs WHERE forked_from = r.run_id), 0)))
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.status = :status AND r.run_no < :before ORDER BY r.run_no DESC LIMIT :limit

-- name: page_of_hold
-- Newest first, of one hold.
SELECT r.run_no, r.run_id, r.workflow, r.title, r.status, r.hold, r.hold_detail, r.node, r.created_wall_ms,
  r.started_wall_ms, r.ended_wall_ms, r.due_wall_ms, r.reason, r.steps, r.restarted_from, r.restart_root, r.restart_no, r.forked_from,
  e.revision, e.generation,
  (SELECT q.request_id FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending'),
  (SELECT n.run_id FROM runs n WHERE n.run_no = max(
    coalesce((SELECT run_no FROM runs WHERE restarted_from = r.run_id), 0),
    coalesce((SELECT max(run_no) FROM runs WHERE forked_from = r.run_id), 0)))
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.hold = :hold AND r.run_no < :before ORDER BY r.run_no DESC LIMIT :limit

-- name: one
-- One run's line.
SELECT r.run_no, r.run_id, r.workflow, r.title, r.status, r.hold, r.hold_detail, r.node, r.created_wall_ms,
  r.started_wall_ms, r.ended_wall_ms, r.due_wall_ms, r.reason, r.steps, r.restarted_from, r.restart_root, r.restart_no, r.forked_from,
  e.revision, e.generation,
  (SELECT q.request_id FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending'),
  (SELECT n.run_id FROM runs n WHERE n.run_no = max(
    coalesce((SELECT run_no FROM runs WHERE restarted_from = r.run_id), 0),
    coalesce((SELECT max(run_no) FROM runs WHERE forked_from = r.run_id), 0)))
FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.run_id = :run_id

-- name: body
-- The rest of a run's row, for its view.
SELECT r.run_no, r.definition_id, r.input, r.input_digest, ci.size, r.output, r.output_digest, co.size, r.error, d.root,
  d.path, v.body, r.max_steps, r.fork_node, r.fork_visit, r.agent, a.session_id
FROM runs r JOIN definitions d ON d.definition_id = r.definition_id
JOIN environments v ON v.environment_id = r.environment_id LEFT JOIN sessions a ON a.session_no = r.session_no
LEFT JOIN contents ci ON ci.digest = r.input_digest LEFT JOIN contents co ON co.digest = r.output_digest
WHERE r.run_id = :run_id

-- name: output
-- A run's output.
SELECT r.output, r.output_digest, c.size FROM runs r LEFT JOIN contents c ON c.digest = r.output_digest
WHERE r.run_id = :run_id

-- name: steps
-- A page of attempts, of one node or of all, the newest last.
SELECT a.attempt, a.node, a.visit, a.tries, a.status, a.generation, a.started_wall_ms, a.ended_wall_ms, a.active_ms, a.printed, a.survivors,
  a.output, a.output_digest, c.size, a.error, a.observed, a.adopted, a.notice
FROM attempts a LEFT JOIN contents c ON c.digest = a.output_digest
WHERE a.run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND a.attempt < :before
  AND (:node IS NULL OR a.node = :node) ORDER BY a.attempt DESC LIMIT :limit

-- name: steps_total
-- How many attempts a run has had.
SELECT attempts FROM runs WHERE run_id = :run_id

-- name: restarts
-- Runs that this run was restarted as.
SELECT run_id FROM runs WHERE restarted_from = :run_id

-- name: forks
-- The newest runs that were forked from this run.
SELECT run_id FROM runs WHERE forked_from = :run_id ORDER BY run_no DESC LIMIT 20

-- name: gone_on_as
-- The newest fork of a run.
SELECT run_id, status FROM runs WHERE forked_from = :run_id ORDER BY run_no DESC LIMIT 1

-- name: unknown_effects
-- Effects of a run of which nobody knows whether they happened, and nothing will observe them.
SELECT node, visit, part FROM effects WHERE entity_no = :run_no AND status = 'ambiguous' LIMIT :limit

-- name: requests_of_status
-- Requests by status, oldest first.
SELECT q.request_id, q.run_id, r.workflow, q.node, q.kind, q.status, q.prompt, q.prompt_digest, cp.size, q.schema,
  q.created_wall_ms, q.settled_wall_ms, q.answer, q.answer_digest, ca.size, q.answered_by, q.revision,
  q.deadline_wall_ms, q.deadline_elapsed_ms, q.deadline_boot_id, q.left_ms, q.default_answer
FROM requests q JOIN runs r ON r.run_id = q.run_id
LEFT JOIN contents cp ON cp.digest = q.prompt_digest LEFT JOIN contents ca ON ca.digest = q.answer_digest
WHERE q.status = :status ORDER BY q.created_wall_ms LIMIT :limit

-- name: one_request
-- One question.
SELECT q.request_id, q.run_id, r.workflow, q.node, q.kind, q.status, q.prompt, q.prompt_digest, cp.size, q.schema,
  q.created_wall_ms, q.settled_wall_ms, q.answer, q.answer_digest, ca.size, q.answered_by, q.revision,
  q.deadline_wall_ms, q.deadline_elapsed_ms, q.deadline_boot_id, q.left_ms, q.default_answer
FROM requests q JOIN runs r ON r.run_id = q.run_id
LEFT JOIN contents cp ON cp.digest = q.prompt_digest LEFT JOIN contents ca ON ca.digest = q.answer_digest
WHERE q.request_id = :request_id

-- name: open_request
-- What a run waits for.
SELECT request_id, kind, deadline_wall_ms, deadline_elapsed_ms, deadline_boot_id, left_ms, default_answer FROM requests WHERE run_id = :run_id AND status = 'pending'

-- name: newest_request
-- The newest question of a run.
SELECT q.request_id, q.run_id, r.workflow, q.node, q.kind, q.status, q.prompt, q.prompt_digest, cp.size, q.schema,
  q.created_wall_ms, q.settled_wall_ms, q.answer, q.answer_digest, ca.size, q.answered_by, q.revision,
  q.deadline_wall_ms, q.deadline_elapsed_ms, q.deadline_boot_id, q.left_ms, q.default_answer
FROM requests q JOIN runs r ON r.run_id = q.run_id
LEFT JOIN contents cp ON cp.digest = q.prompt_digest LEFT JOIN contents ca ON ca.digest = q.answer_digest
WHERE q.run_id = :run_id ORDER BY q.created_wall_ms DESC, q.attempt DESC LIMIT 1

-- name: newest_submission
-- What was last submitted for a request.
SELECT s.status, s.reason, s.submitted_by, s.created_wall_ms FROM submissions s
WHERE s.request_id = :request_id ORDER BY s.submission_no DESC LIMIT 1

-- name: refers
-- Whether a run refers to a value: input, output, an attempt's output, a prompt, an answer, an effect's request or output,
-- an upload, a pinned file.
SELECT 1 FROM runs WHERE run_id = :run_id AND (input_digest = :digest OR output_digest = :digest)
UNION ALL SELECT 1 FROM attempts
  WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND output_digest = :digest
UNION ALL SELECT 1 FROM effects
  WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND (request_digest = :digest OR output_digest = :digest)
UNION ALL SELECT 1 FROM requests WHERE run_id = :run_id AND (prompt_digest = :digest OR answer_digest = :digest)
UNION ALL SELECT 1 FROM submissions WHERE run_id = :run_id AND value_digest = :digest
UNION ALL SELECT 1 FROM messages
  WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND body_digest = :digest
UNION ALL SELECT 1 FROM content_holds
  WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND digest = :digest
UNION ALL SELECT 1 FROM runs r JOIN definition_sources s ON s.definition_id = r.definition_id
  WHERE r.run_id = :run_id AND s.digest = :digest
LIMIT 1

-- name: queue_state
-- Where a run stands in the queue.
SELECT state, due_wall_ms, due_elapsed_ms, due_boot_id FROM run_queue
WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id)

-- name: runner_state
-- The process of a run.
SELECT state, generation, pid FROM runners WHERE entity_no = (SELECT run_no FROM runs WHERE run_id = :run_id)

-- name: active_since
-- The attempt that is going on.
SELECT attempt, node, started_wall_ms FROM attempts
WHERE run_no = (SELECT run_no FROM runs WHERE run_id = :run_id) AND status = 'active'
