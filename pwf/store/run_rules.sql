-- What `state verify` checks of runs: each query lists the runs that break a rule. It scans on purpose.

-- name: ended_open
-- An ended run has nothing open.
SELECT r.run_id FROM runs r WHERE r.ended_wall_ms IS NOT NULL AND (
  EXISTS (SELECT 1 FROM run_queue q WHERE q.run_no = r.run_no)
  OR EXISTS (SELECT 1 FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending')
  OR EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = r.run_no AND a.status = 'active')
  OR EXISTS (SELECT 1 FROM effects e WHERE e.entity_no = r.run_no AND e.status = 'applying')
  OR EXISTS (SELECT 1 FROM entities e WHERE e.entity_no = r.run_no AND e.lease_token IS NOT NULL)
  OR EXISTS (SELECT 1 FROM runners p WHERE p.entity_no = r.run_no AND p.epoch < :epoch))

-- name: running_unowned
-- A running run has a live queue row, a lease and a runner of its own generation.
SELECT r.run_id FROM runs r WHERE r.status = 'running' AND NOT (
  EXISTS (SELECT 1 FROM run_queue q WHERE q.run_no = r.run_no AND q.state = 'live')
  AND EXISTS (SELECT 1 FROM entities e JOIN runners p ON p.entity_no = r.run_no AND p.generation = e.generation
    WHERE e.entity_no = r.run_no AND e.lease_token IS NOT NULL))

-- name: queued_undue
-- A queued run is due, now or later, and nobody owns it.
SELECT r.run_id FROM runs r WHERE r.status = 'queued' AND (
  NOT EXISTS (SELECT 1 FROM run_queue q WHERE q.run_no = r.run_no AND q.state IN ('ready', 'later'))
  OR EXISTS (SELECT 1 FROM entities e WHERE e.entity_no = r.run_no AND e.lease_token IS NOT NULL))

-- name: ready_open
-- A run that a runner may begin has no open attempt: one whose timer is set is due later until that is over.
SELECT r.run_id FROM run_queue q JOIN runs r ON r.run_no = q.run_no WHERE q.state = 'ready'
  AND EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = q.run_no AND a.status = 'active')

-- name: queue_misplaced
-- Of the runs that wait for capacity or a time, those that were never launched stand with the new starts.
SELECT r.run_id FROM run_queue q JOIN runs r ON r.run_no = q.run_no JOIN entities e ON e.entity_no = q.run_no
WHERE q.state <> 'live' AND q.is_new <> (e.generation = 0)

-- name: waiting_unasked
-- A waiting run has one open request, no queue row and no owner.
SELECT r.run_id FROM runs r WHERE r.status = 'waiting' AND (
  NOT EXISTS (SELECT 1 FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending')
  OR EXISTS (SELECT 1 FROM run_queue q WHERE q.run_no = r.run_no)
  OR EXISTS (SELECT 1 FROM entities e WHERE e.entity_no = r.run_no AND e.lease_token IS NOT NULL))

-- name: held_loose
-- A held run has a reason, no queue row, no open request and no owner.
SELECT r.run_id FROM runs r WHERE r.status = 'held' AND (
  r.hold IS NULL
  OR EXISTS (SELECT 1 FROM run_queue q WHERE q.run_no = r.run_no)
  OR EXISTS (SELECT 1 FROM requests q WHERE q.run_id = r.run_id AND q.status = 'pending')
  OR EXISTS (SELECT 1 FROM entities e WHERE e.entity_no = r.run_no AND e.lease_token IS NOT NULL))

-- name: request_stray
-- An open request of a run that has not ended is that of the position's open attempt, and its run waits.
SELECT q.run_id FROM requests q JOIN runs r ON r.run_id = q.run_id
WHERE q.status = 'pending' AND r.ended_wall_ms IS NULL AND (
  r.status <> 'waiting' OR q.attempt <> r.attempts OR q.node <> r.node OR q.visit <> r.visit
  OR NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = r.run_no AND a.attempt = q.attempt AND a.status = 'active'))

-- name: answer_lost
-- The answer of a settled request is the output of the attempt that asked.
SELECT q.run_id FROM requests q JOIN runs r ON r.run_id = q.run_id WHERE q.status = 'settled'
  AND NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = r.run_no AND a.attempt = q.attempt
    AND a.status = 'completed' AND a.output IS q.answer AND a.output_digest IS q.answer_digest)

-- name: decision_unwon
-- A decision has one winner when its request is closed, and none before.
SELECT q.run_id FROM decisions d JOIN requests q ON q.request_id = d.request_id
WHERE (q.status = 'pending') = EXISTS (SELECT 1 FROM answers a WHERE a.request_id = d.request_id AND a.won = 1)

-- name: decision_misled
-- What the run goes on with is what has won.
SELECT q.run_id FROM answers a JOIN requests q ON q.request_id = a.request_id WHERE a.won = 1
  AND q.status <> 'pending' AND ((q.status = 'settled') <> (a.choice IS NOT NULL)
    OR (q.answer IS NOT NULL AND json_extract(CAST(q.answer AS TEXT), '$.choice') IS NOT a.choice))

-- name: link_misled
-- A link is to what its decision proposes; one that has decided has won, on a page.
SELECT q.run_id FROM web_tokens t JOIN decisions d ON d.request_id = t.request_id
  JOIN requests q ON q.request_id = t.request_id
WHERE t.digest <> d.digest OR (t.used_wall_ms IS NOT NULL AND NOT EXISTS (SELECT 1 FROM answers a
  WHERE a.request_id = t.request_id AND a.won = 1 AND a.provenance = 'person' AND a.channel = 'web'))

-- name: clock_misplaced
-- The time of an open request passes while its run is not held, and only then.
SELECT q.run_id FROM requests q JOIN runs r ON r.run_id = q.run_id
WHERE q.status = 'pending' AND r.status = 'waiting'
  AND CASE WHEN r.hold IS NULL THEN q.left_ms IS NOT NULL ELSE q.deadline_wall_ms IS NOT NULL END

-- name: position_miscounted
-- The visits add up to the steps taken, and the position is its node's newest. (Visits that are no JSON are damage.)
WITH counted AS (SELECT run_id, steps, visit, node, iif(json_valid(CAST(visits AS TEXT)), CAST(visits AS TEXT), '{}') v
  FROM runs WHERE json_valid(CAST(visits AS TEXT)))
SELECT c.run_id FROM counted c WHERE c.steps <> (SELECT sum(j.value) FROM json_each(c.v) j)
  OR c.visit IS NOT (SELECT j.value FROM json_each(c.v) j WHERE j.key = c.node)

-- name: entries_miscounted
-- What an included workflow counts from at its entry is no more than the visits that there were.
SELECT r.run_id FROM runs r, json_each(iif(json_valid(CAST(r.entries AS TEXT)), CAST(r.entries AS TEXT), '{}')) m, json_each(m.value) n
WHERE r.entries <> x'7b7d' AND n.value > coalesce((SELECT v.value
  FROM json_each(iif(json_valid(CAST(r.visits AS TEXT)), CAST(r.visits AS TEXT), '{}')) v WHERE v.key = n.key), 0)

-- name: attempts_miscounted
-- The counter names the newest attempt, and attempts are numbered without gaps.
SELECT r.run_id FROM runs r WHERE r.attempts <> (SELECT count(*) FROM attempts a WHERE a.run_no = r.run_no)
  OR r.attempts <> (SELECT coalesce(max(a.attempt), 0) FROM attempts a WHERE a.run_no = r.run_no)

-- name: work_stray
-- What an agent has reported belongs to an attempt of the run.
SELECT r.run_id FROM agent_work w JOIN runs r ON r.run_no = w.run_no
WHERE NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = w.run_no AND a.attempt = w.attempt)

-- name: detail_stray
-- What a run waits for is said of one that is held, or due later.
SELECT run_id FROM runs WHERE hold_detail IS NOT NULL AND hold IS NULL AND (status <> 'queued' OR due_wall_ms IS NULL)

-- name: probe_stray
-- Who tries whether a limit has ended is a run with an agent.
SELECT r.run_id FROM agent_limits l JOIN runs r ON r.run_no = l.probe_no WHERE r.agent IS NULL

-- name: budget_stray
-- What a person said of an agent's budget is of a run that has one, or gets one.
SELECT r.run_id FROM run_budgets b JOIN runs r ON r.run_no = b.run_no
WHERE b.over_day = 1 AND (r.agent IS NULL OR b.raised IS NULL)

-- name: ambiguous_loose
-- An ambiguous effect holds its run, or the run has ended.
SELECT r.run_id FROM effects e JOIN runs r ON r.run_no = e.entity_no
WHERE e.status IN ('applying', 'ambiguous') AND e.status = 'ambiguous' AND r.ended_wall_ms IS NULL AND r.hold IS NOT 'effect_ambiguous'
  AND r.hold IS NOT 'process_unreaped'

-- name: step_repeated
-- A visit is completed at most once.
SELECT r.run_id FROM attempts a JOIN runs r ON r.run_no = a.run_no WHERE a.status = 'completed'
GROUP BY a.run_no, a.node, a.visit HAVING count(*) > 1

-- name: manual_repeated
-- A node's manual effect that was applied has exactly one completed attempt.
SELECT r.run_id FROM effects e JOIN runs r ON r.run_no = e.entity_no
WHERE e.part = '' AND e.mode = 'manual' AND e.status = 'applied' AND r.ended_wall_ms IS NULL
  AND 1 <> (SELECT count(*) FROM attempts a
    WHERE a.run_no = e.entity_no AND a.node = e.node AND a.visit = e.visit AND a.status = 'completed')

-- name: effect_unsettled
-- The effect of a completed step was applied, and of one that makes several, each is settled.
SELECT r.run_id FROM attempts a JOIN runs r ON r.run_no = a.run_no
JOIN effects e ON e.entity_no = r.run_no AND e.node = a.node AND e.visit = a.visit
WHERE a.status = 'completed' AND iif(e.part = '', e.status <> 'applied', e.status IN ('applying', 'ambiguous', 'abandoned'))

-- name: effect_left
-- An effect is open only at the position of its run, or where that has ended.
SELECT r.run_id FROM effects e JOIN runs r ON r.run_no = e.entity_no
WHERE e.status IN ('applying', 'ambiguous') AND r.ended_wall_ms IS NULL AND (e.node <> r.node OR e.visit <> r.visit)

-- name: effect_unattempted
-- An effect belongs to a visit that was attempted.
SELECT r.run_id FROM effects e JOIN runs r ON r.run_no = e.entity_no
WHERE NOT EXISTS (SELECT 1 FROM attempts a WHERE a.run_no = e.entity_no AND a.node = e.node AND a.visit = e.visit)

-- name: effect_mixed
-- A visit has one effect that its node declares, or parts.
SELECT r.run_id FROM effects e JOIN runs r ON r.run_no = e.entity_no
WHERE e.part = '' AND EXISTS (SELECT 1 FROM effects p
  WHERE p.entity_no = e.entity_no AND p.node = e.node AND p.visit = e.visit AND p.part <> '')

-- name: notice_empty
-- A notice is the output of its attempt.
SELECT r.run_id FROM attempts a JOIN runs r ON r.run_no = a.run_no
WHERE a.notice IS NOT NULL AND a.output IS NULL AND a.output_digest IS NULL

-- name: active_stray
-- An open attempt belongs to the position of a run that runs, waits, or has a timer.
SELECT r.run_id FROM attempts a JOIN runs r ON r.run_no = a.run_no
WHERE a.status = 'active' AND (a.attempt <> r.attempts OR a.node <> r.node OR a.visit <> r.visit)

-- name: counts_wrong
-- The counter per status is what a count would give.
SELECT c.status FROM run_counts c WHERE c.runs <> (SELECT count(*) FROM runs r WHERE r.status = c.status)
UNION SELECT r.status FROM runs r WHERE r.status NOT IN (SELECT c.status FROM run_counts c)

-- name: runner_stray
-- A runner row of an earlier daemon that recovery has neither settled nor held the run for.
SELECT r.run_id FROM runners p JOIN runs r ON r.run_no = p.entity_no
WHERE p.epoch < :epoch AND r.ended_wall_ms IS NULL AND r.hold IS NOT 'process_unreaped'

-- name: restart_orphaned
-- A run that was restarted is there as long as its restarts are: retention removes whole trees.
SELECT r.run_id FROM runs r WHERE r.restarted_from IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs f WHERE f.run_id = r.restarted_from)

-- name: restart_early
-- Only a run that has ended is restarted.
SELECT r.run_id FROM runs r JOIN runs f ON f.run_id = r.restarted_from WHERE f.ended_wall_ms IS NULL

-- name: restart_misrooted
-- The root of a restart is the first run of its chain, and that has none.
WITH RECURSIVE chain(run_id, first) AS (
  SELECT run_id, run_id FROM runs WHERE restarted_from IS NULL
  UNION ALL SELECT r.run_id, chain.first FROM chain JOIN runs r ON r.restarted_from = chain.run_id)
SELECT r.run_id FROM chain JOIN runs r ON r.run_id = chain.run_id
WHERE r.restart_root IS NOT CASE WHEN r.restarted_from IS NOT NULL THEN chain.first END

-- name: restart_miscounted
-- Restarts count by one from the first run, which is number 0.
SELECT r.run_id FROM runs r LEFT JOIN runs f ON f.run_id = r.restarted_from
WHERE r.restart_no <> CASE WHEN r.restarted_from IS NULL THEN 0 ELSE f.restart_no + 1 END

-- name: restart_circular
-- From every run its chain leads back to a first run, or to one that is missing.
WITH RECURSIVE chain(run_id) AS (
  SELECT run_id FROM runs r WHERE restarted_from IS NULL
    OR NOT EXISTS (SELECT 1 FROM runs f WHERE f.run_id = r.restarted_from)
  UNION ALL SELECT r.run_id FROM chain JOIN runs r ON r.restarted_from = chain.run_id)
SELECT run_id FROM runs WHERE run_id NOT IN (SELECT run_id FROM chain)

-- name: fork_orphaned
-- A run that was forked is there as long as its forks are: retention removes whole trees.
SELECT r.run_id FROM runs r WHERE r.forked_from IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM runs f WHERE f.run_id = r.forked_from)

-- name: fork_circular
-- A fork is made after the run that it is forked from.
SELECT r.run_id FROM runs r JOIN runs f ON f.run_id = r.forked_from WHERE f.run_no >= r.run_no

-- name: tree_misrooted
-- A restart or a fork belongs to the tree of the run that it comes from; every other run is the root of its own.
SELECT r.run_id FROM runs r LEFT JOIN runs f ON f.run_id = coalesce(r.forked_from, r.restarted_from)
WHERE r.tree_root IS NOT coalesce(f.tree_root, f.run_id) AND (f.run_id IS NOT NULL
  OR coalesce(r.forked_from, r.restarted_from) IS NULL)

-- name: adopted_stray
-- What a fork took over is a result of the run that it was forked from.
SELECT r.run_id FROM attempts a JOIN runs r ON r.run_no = a.run_no
WHERE a.adopted IS NOT NULL AND NOT EXISTS (SELECT 1 FROM runs f JOIN attempts o ON o.run_no = f.run_no
  WHERE f.run_id = r.forked_from AND o.attempt = a.adopted AND o.node = a.node AND o.visit = a.visit
    AND o.status = a.status AND o.output_crc32 IS a.output_crc32 AND o.output_digest IS a.output_digest)

-- name: adopted_effect
-- No effect is taken over.
SELECT r.run_id FROM attempts a JOIN runs r ON r.run_no = a.run_no
JOIN effects e ON e.entity_no = r.run_no AND e.node = a.node AND e.visit = a.visit
WHERE a.adopted IS NOT NULL

-- name: settings_stray
-- Only a workflow that declares settings has any.
SELECT r.run_id FROM settings s JOIN runs r ON r.run_no = s.run_no JOIN definitions d ON d.definition_id = r.definition_id
WHERE CASE s.scope WHEN '' THEN json_extract(CAST(d.graph AS TEXT), '$.settings') IS NULL
  ELSE NOT EXISTS (
    SELECT 1 FROM json_each(CAST(d.graph AS TEXT), '$.nodes') n
    WHERE n.value ->> '$.id' = s.scope AND n.value ->> '$.mount.settings' IS NOT NULL
  ) END

-- name: settings_uncounted
-- The number of their newest change is how many there were.
SELECT r.run_id FROM runs r
WHERE (SELECT coalesce(max(s.change), 0) FROM settings s WHERE s.run_no = r.run_no) <> (SELECT count(*) FROM events e WHERE e.entity_no = r.run_no AND e.kind = 'settings_changed')

-- name: content_incomplete
-- A value that something refers to is all there.
SELECT r.run_id FROM attempts a JOIN runs r ON r.run_no = a.run_no
  JOIN contents c ON c.digest = a.output_digest WHERE c.complete = 0
UNION SELECT r.run_id FROM runs r JOIN contents c ON c.digest IN (r.input_digest, r.output_digest) WHERE c.complete = 0
UNION SELECT q.run_id FROM requests q JOIN contents c ON c.digest IN (q.prompt_digest, q.answer_digest)
  WHERE c.complete = 0
UNION SELECT s.run_id FROM submissions s JOIN contents c ON c.digest = s.value_digest WHERE c.complete = 0
UNION SELECT r.run_id FROM effects e JOIN runs r ON r.run_no = e.entity_no
  JOIN contents c ON c.digest IN (e.request_digest, e.output_digest) WHERE c.complete = 0
UNION SELECT r.run_id FROM definition_sources s JOIN contents c ON c.digest = s.digest
  JOIN runs r ON r.definition_id = s.definition_id WHERE c.complete = 0
