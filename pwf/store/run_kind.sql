-- What recovery, restore and retention ask of runs.

-- name: unattended
-- Runs that say they run while no process stands for them.
SELECT r.run_no, r.run_id, e.generation FROM runs r JOIN entities e ON e.entity_no = r.run_no
WHERE r.status = 'running' AND NOT EXISTS (SELECT 1 FROM runners WHERE runners.entity_no = r.run_no)

-- name: not_ended
-- Runs that would go on by themselves, by an answer, or when somebody resumes them. An ambiguous effect, a row that
-- can't be handled and a run that is held as restored already keep their hold: a person has to look there anyway.
SELECT run_id FROM runs
WHERE status IN ('queued', 'running', 'waiting', 'held')
  AND (hold IS NULL OR hold NOT IN ('effect_ambiguous', 'broken', 'restored'))

-- name: ended_before
-- Ended runs in the order of their end, from a place on; each with the root of its tree.
SELECT ended_wall_ms, run_no, coalesce(tree_root, run_id) FROM runs
WHERE ended_wall_ms IS NOT NULL AND ended_wall_ms < :before_ms AND (ended_wall_ms, run_no) > (:after_ms, :after_no)
ORDER BY ended_wall_ms, run_no LIMIT :limit

-- name: tree
-- All runs of a tree: the first one, its restarts and forks, and theirs.
SELECT run_no, run_id, ended_wall_ms FROM runs WHERE run_id = :group
UNION ALL SELECT run_no, run_id, ended_wall_ms FROM runs WHERE tree_root = :group AND run_id <> :group

-- name: effect_unsettled
-- Nobody knows yet whether an effect of the run happened.
SELECT 1 FROM effects WHERE entity_no = :run_no AND status IN ('applying', 'ambiguous') LIMIT 1

-- name: drop_updates
-- The newest progress records.
DELETE FROM updates WHERE run_id = :run_id

-- name: drop_settings
-- As they were changed.
DELETE FROM settings WHERE run_no = :run_no

-- name: drop_effects
-- The ledger's rows of the run: all are settled.
DELETE FROM effects WHERE entity_no = :run_no

-- name: submissions
-- What was submitted for the run; each is an entity of its own, which goes with it.
SELECT submission_no FROM submissions WHERE run_id = :run_id

-- name: errand_unproved
-- A process that judged something for the run was not shown dead.
SELECT 1 FROM submissions s JOIN runners p ON p.entity_no = s.submission_no WHERE s.run_id = :run_id LIMIT 1

-- name: drop_submissions
-- What was submitted for it.
DELETE FROM submissions WHERE run_id = :run_id

-- name: drop_submission_events
-- The history of one.
DELETE FROM events WHERE entity_no = :submission_no

-- name: drop_submission_entity
-- Its revision and generation.
DELETE FROM entities WHERE entity_no = :submission_no

-- name: drop_sends
-- What the ledger has of messages about it.
DELETE FROM effects WHERE (entity_no, node, visit, part) IN (
  SELECT channel_no, 'message', 1, message_id FROM channel_messages WHERE run_id = :run_id)

-- name: drop_messages
-- What channels showed of it.
DELETE FROM channel_messages WHERE run_id = :run_id

-- name: drop_happenings
-- What was to be told of it.
DELETE FROM happenings WHERE run_id = :run_id

-- name: drop_turns
-- Turns of its session about it.
DELETE FROM turns WHERE message_no IN (SELECT message_no FROM messages WHERE run_no = :run_no)

-- name: drop_told
-- What was said of it to its session.
DELETE FROM messages WHERE run_no = :run_no

-- name: drop_entries
-- What its session has recorded about it.
DELETE FROM session_entries WHERE run_no = :run_no

-- name: drop_segments
-- And how far that came.
DELETE FROM segments WHERE run_no = :run_no

-- name: drop_answers
-- Every answer to its decisions.
DELETE FROM answers WHERE request_id IN (SELECT request_id FROM requests WHERE run_id = :run_id)

-- name: drop_links
-- Links to its decisions.
DELETE FROM web_tokens WHERE request_id IN (SELECT request_id FROM requests WHERE run_id = :run_id)

-- name: drop_decisions
-- What people were asked to decide.
DELETE FROM decisions WHERE request_id IN (SELECT request_id FROM requests WHERE run_id = :run_id)

-- name: drop_requests
-- Questions and their answers.
DELETE FROM requests WHERE run_id = :run_id

-- name: drop_budget
-- What a person said that its agents may use.
DELETE FROM run_budgets WHERE run_no = :run_no

-- name: drop_probe
-- Whether an account's limit has ended, another run tries.
UPDATE agent_limits SET probe_no = NULL, probe_attempt = NULL WHERE probe_no = :run_no

-- name: drop_agent_work
-- What agents reported of these.
DELETE FROM agent_work WHERE run_no = :run_no

-- name: drop_attempts
-- Every try of every visit.
DELETE FROM attempts WHERE run_no = :run_no

-- name: drop_queue
-- An ended run has no such row; one that is there all the same must not keep the whole walk from going on.
DELETE FROM run_queue WHERE run_no = :run_no

-- name: keep_child
-- What its resource gets for it from now on, if it is the child of one that lives: the newest run under its key says it.
INSERT OR REPLACE INTO former_children(resource_no, call_key, call_fingerprint, run_no, run_id, workflow, status, reason,
  restart_no, created_wall_ms, ended_wall_ms, output, output_crc32, output_digest)
SELECT r.called_by, r.call_key, r.call_fingerprint, r.run_no, r.run_id, r.workflow, r.status, r.reason,
  r.restart_no, r.created_wall_ms, r.ended_wall_ms, r.output, r.output_crc32, r.output_digest
FROM runs r JOIN resources s ON s.resource_no = r.called_by
WHERE r.run_no = :run_no AND s.gone_wall_ms IS NULL AND NOT EXISTS (SELECT 1 FROM former_children f
  WHERE f.resource_no = r.called_by AND f.call_key = r.call_key AND f.run_no > r.run_no)

-- name: drop_run
-- The run itself, if it has ended.
DELETE FROM runs WHERE run_no = :run_no AND ended_wall_ms IS NOT NULL

-- name: suspect_running
-- Every run whose step was open when its daemon died.
UPDATE runs SET daemon_deaths = daemon_deaths + 1 WHERE status = 'running'
  AND EXISTS (SELECT 1 FROM attempts WHERE attempts.run_no = runs.run_no AND attempts.status = 'active')

-- name: suspect_nobody
-- Another boot: what died there tells nothing.
UPDATE runs SET daemon_deaths = 0 WHERE daemon_deaths > 0
