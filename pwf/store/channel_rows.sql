-- Channels: what the configuration names, and how their adapters stand.

-- name: channels
-- All that ever were, in the order of their making.
SELECT channel_no, c.name, c.kind, c.tells, c.state, c.trouble, c.changed_wall_ms, c.cursor, e.generation
FROM channels c JOIN entities e ON e.entity_no = c.channel_no ORDER BY c.channel_no

-- name: channel
-- One, by its number.
SELECT c.channel_no, c.name, c.kind, c.tells, c.state, c.trouble, c.changed_wall_ms, c.cursor, e.generation
FROM channels c JOIN entities e ON e.entity_no = c.channel_no WHERE c.channel_no = :channel_no

-- name: add
-- A channel that was never configured before.
INSERT INTO channels(channel_no, name, kind, tells, state, changed_wall_ms)
VALUES (:channel_no, :name, :kind, :tells, 'starting', :now)

-- name: configure
-- What the configuration says of one now; of another kind it has read nothing yet.
UPDATE channels SET cursor = iif(kind = :kind, cursor, NULL), kind = :kind, tells = :tells, state = :state, trouble = NULL,
  changed_wall_ms = :now WHERE channel_no = :channel_no

-- name: stand
-- How its adapter stands.
UPDATE channels SET state = :state, trouble = :trouble, changed_wall_ms = :now WHERE channel_no = :channel_no

-- name: new_epoch
-- Another process begins to work for it.
UPDATE entities SET generation = generation + 1 WHERE entity_no = :channel_no

-- name: move_cursor
-- So much is read.
UPDATE channels SET cursor = :cursor WHERE channel_no = :channel_no

-- name: lost_effects
-- Nobody knows whether what was being sent arrived.
UPDATE effects SET status = 'ambiguous' WHERE entity_no = :channel_no AND status = 'applying'

-- name: lost_messages
-- The same of the messages.
UPDATE channel_messages SET state = 'ambiguous', why = :why WHERE channel_no = :channel_no AND state = 'sending'

-- name: drop_due
-- It is not configured any more: what it was to show, nobody shows.
UPDATE channel_messages SET state = 'void', due_wall_ms = NULL, why = :why WHERE channel_no = :channel_no AND state = 'due'
