-- Tokens of the answer pages, by their hashes.

-- name: token
-- What is known of one.
SELECT purpose, request_id, digest, made_by, expires_wall_ms, used_wall_ms FROM web_tokens WHERE token_hash = :token_hash

-- name: add_token
-- A new one.
INSERT INTO web_tokens(token_hash, purpose, request_id, digest, made_by, made_wall_ms, expires_wall_ms)
VALUES (:token_hash, :purpose, :request_id, :digest, :made_by, :now, :expires_ms)

-- name: proposed
-- What a link to a decision is bound to, while the decision is open.
SELECT d.digest, q.run_id FROM decisions d JOIN requests q ON q.request_id = d.request_id
WHERE d.request_id = :request_id AND q.status = 'pending'

-- name: links_of
-- How many links to a decision there are.
SELECT count(*) FROM web_tokens WHERE request_id = :request_id

-- name: expiring
-- How many sign-ins there are.
SELECT count(*) FROM web_tokens WHERE expires_wall_ms IS NOT NULL AND expires_wall_ms > :now

-- name: spend
-- The link has decided.
UPDATE web_tokens SET used_wall_ms = :now WHERE token_hash = :token_hash AND used_wall_ms IS NULL

-- name: drop_token
-- It was used, or its holder has signed out.
DELETE FROM web_tokens WHERE token_hash = :token_hash AND request_id IS NULL

-- name: drop_over
-- Sign-ins whose time is over.
DELETE FROM web_tokens WHERE expires_wall_ms IS NOT NULL AND expires_wall_ms <= :now

-- name: drop_sign_ins
-- All sign-ins, and links to sign in.
DELETE FROM web_tokens WHERE expires_wall_ms IS NOT NULL
