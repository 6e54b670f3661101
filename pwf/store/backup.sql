-- Backups: what a copy says about itself.

-- name: fact
-- A fact of the database.
SELECT value FROM meta WHERE key = :key

-- name: set_fact
-- Write or replace a fact in the copy.
INSERT INTO meta (key, value) VALUES (:key, :value) ON CONFLICT (key) DO UPDATE SET value = excluded.value

-- name: epoch
-- How many daemons have served the database.
SELECT generation FROM entities WHERE entity_no = 0

-- name: newest_event
-- When something last happened in it.
SELECT coalesce(max(at_wall_ms), 0) FROM events
