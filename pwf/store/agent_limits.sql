-- Usage limits of agents' accounts.

-- name: limit
-- The limit of an account, and whether a step of another run than this tries just now whether it has ended.
SELECT l.until_wall_ms, EXISTS (SELECT 1 FROM runs r WHERE r.run_no = l.probe_no AND r.run_no <> :run_no
  AND r.status = 'running' AND r.attempts = l.probe_attempt) FROM agent_limits l WHERE l.account = :account

-- name: known
-- What is known of an account's limit.
SELECT until_wall_ms, refusals FROM agent_limits WHERE account = :account

-- name: put
-- It was met, now or again.
INSERT INTO agent_limits(account, until_wall_ms, refusals) VALUES (:account, :until, :refusals)
ON CONFLICT(account) DO UPDATE SET until_wall_ms = excluded.until_wall_ms, refusals = excluded.refusals,
  probe_no = NULL, probe_attempt = NULL

-- name: probe
-- The next attempt of this run tries whether it has ended.
UPDATE agent_limits SET probe_no = :run_no, probe_attempt = :attempt WHERE account = :account

-- name: lift
-- It has ended, or somebody says so.
DELETE FROM agent_limits WHERE account = :account

-- name: all
-- Every limit, for people.
SELECT account, until_wall_ms FROM agent_limits

-- name: met
-- Whether this attempt met a limit.
SELECT 1 FROM attempts WHERE run_no = :run_no AND attempt = :attempt AND status = 'limited'
