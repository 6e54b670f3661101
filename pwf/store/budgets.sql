-- What agents may use, and what they have used on each day.

-- name: said
-- What a person said for the run: at its start, and when it was held.
SELECT at_start, raised, over_day FROM run_budgets WHERE run_no = :run_no

-- name: start
-- What was said at the start.
INSERT INTO run_budgets(run_no, at_start) VALUES (:run_no, :budget)

-- name: inherit
-- A run that goes on from another has what was said at that one's start.
INSERT INTO run_budgets(run_no, at_start)
SELECT :run_no, b.at_start FROM run_budgets b JOIN runs r ON r.run_no = b.run_no
WHERE r.run_id = :parent AND b.at_start IS NOT NULL

-- name: say_more
-- More, in place of what held before for the same; also beyond the day's.
INSERT INTO run_budgets(run_no, raised, over_day) VALUES (:run_no, :budget, 1)
ON CONFLICT(run_no) DO UPDATE SET raised = excluded.raised, over_day = excluded.over_day

-- name: used
-- By the agents of a run; of steps that of one visit only where it ends.
SELECT coalesce(sum(w.input_tokens + w.output_tokens), 0), coalesce(sum(w.cost_micros), 0), coalesce(sum(a.active_ms), 0),
  count(DISTINCT iif(NOT :ends AND a.node = :node AND a.visit = :visit, NULL, a.node || '#' || a.visit))
FROM agent_work w JOIN attempts a ON a.run_no = w.run_no AND a.attempt = w.attempt WHERE w.run_no = :run_no

-- name: day
-- By all runs of an agent on a day.
SELECT tokens, cost_micros, active_ms, steps FROM agent_days WHERE agent = :agent_name AND day = :day

-- name: add
-- So much more on that day.
INSERT INTO agent_days(agent, day, tokens, cost_micros, active_ms, steps)
VALUES (:agent_name, :day, :tokens, :cost_micros, :active_ms, :steps)
ON CONFLICT(agent, day) DO UPDATE SET tokens = tokens + excluded.tokens, cost_micros = cost_micros + excluded.cost_micros,
  active_ms = active_ms + excluded.active_ms, steps = steps + excluded.steps

-- name: forget
-- What nobody asks for any more.
DELETE FROM agent_days WHERE agent = :agent_name AND day < :day
