-- Whose database this is: its home id, bound to the folder that it lies in.

-- name: fact
-- A fact of the database.
SELECT value FROM meta WHERE key = :key

-- name: set_fact
-- Write or replace a fact.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: void_leases
-- No lease in a copy was given by whoever serves it.
UPDATE entities
SET lease_owner = NULL, lease_token = NULL, lease_boot_id = NULL, lease_until_awake_ms = NULL
WHERE lease_owner IS NOT NULL

-- name: void_tokens
-- Whoever holds a link or is signed in got that of the home from which the copy was made.
DELETE FROM web_tokens

-- name: last_epoch
-- The number of the last daemon that the database knows.
SELECT generation FROM entities WHERE entity_no = 0

-- name: last_claim
-- Whether a daemon serves, as far as the database knows, and which.
SELECT kind, payload FROM events WHERE entity_no = 0 AND kind IN ('claimed', 'released')
ORDER BY revision DESC LIMIT 1
