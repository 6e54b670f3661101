-- What agents report of their work.

-- name: begin_work
-- An attempt of an agent, which has reported nothing yet.
INSERT INTO agent_work(run_no, attempt, agent, input_tokens, output_tokens, cost_micros)
VALUES (:run_no, :attempt, :agent_name, 0, 0, 0) ON CONFLICT DO NOTHING

-- name: reported
-- What was reported of an attempt before.
SELECT input_tokens + output_tokens, cost_micros FROM agent_work WHERE run_no = :run_no AND attempt = :attempt

-- name: put_work
-- The newest sums of the attempt that goes on, which never shrink; zero rows when another one does by now.
INSERT INTO agent_work(run_no, attempt, agent, conversation, afresh, input_tokens, output_tokens, cost_micros)
SELECT run_no, :attempt, :agent_name, :conversation, nullif(:afresh, ''), :input_tokens, :output_tokens, :cost_micros
FROM runs WHERE run_no = :run_no AND attempts = :attempt AND status = 'running'
ON CONFLICT(run_no, attempt) DO UPDATE SET conversation = coalesce(excluded.conversation, conversation),
  afresh = coalesce(excluded.afresh, afresh), input_tokens = max(input_tokens, excluded.input_tokens),
  output_tokens = max(output_tokens, excluded.output_tokens), cost_micros = max(cost_micros, excluded.cost_micros)

-- name: conversation
-- What this agent began in the visit, and has not failed in since: only its process, its daemon or the machine ended.
SELECT w.conversation, (SELECT sum(s.cost_micros) FROM agent_work s WHERE s.run_no = w.run_no AND s.agent = w.agent
  AND s.conversation = w.conversation) FROM agent_work w JOIN attempts a ON a.run_no = w.run_no AND a.attempt = w.attempt
WHERE w.run_no = :run_no AND w.agent = :agent_name AND a.node = :node AND a.visit = :visit AND w.conversation IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM attempts f WHERE f.run_no = a.run_no AND f.node = a.node AND f.visit = a.visit
    AND f.attempt >= a.attempt AND f.status IN ('failed', 'timed_out')
    AND json_extract(CAST(f.error AS TEXT), '$.code') IS NOT 'runner_crashed')
ORDER BY w.attempt DESC LIMIT 1

-- name: works
-- What was reported of a page of attempts.
SELECT attempt, agent, conversation, afresh, input_tokens, output_tokens, cost_micros FROM agent_work
WHERE run_no = :run_no AND attempt BETWEEN :first AND :last

-- name: sums
-- What the agents of a run have used.
SELECT sum(input_tokens), sum(output_tokens), sum(cost_micros) FROM agent_work WHERE run_no = :run_no
