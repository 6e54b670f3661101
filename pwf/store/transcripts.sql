-- What sessions record of their conversations, run by run.

-- name: own_run
-- A run of a session.
SELECT run_no FROM runs WHERE run_id = :run_id AND session_no = :session_no

-- name: segment
-- How far a segment has come.
SELECT first_number, next_number, bytes FROM segments WHERE run_no = :run_no AND segment = :segment

-- name: count_segments
-- How many a run has.
SELECT count(*) FROM segments WHERE run_no = :run_no

-- name: put_segment
-- How far it has come now.
INSERT INTO segments(run_no, segment, first_number, next_number, bytes)
VALUES (:run_no, :segment, :first, :following, :size)
ON CONFLICT(run_no, segment) DO UPDATE SET first_number = :first, next_number = :following, bytes = :size

-- name: entry
-- One that is kept.
SELECT kind, body FROM session_entries WHERE run_no = :run_no AND segment = :segment AND number = :number

-- name: add_entry
-- One more.
INSERT INTO session_entries(run_no, segment, number, kind, body, body_crc32, recorded_wall_ms)
VALUES (:run_no, :segment, :number, :kind, :body, :body_crc32, :now)

-- name: oldest
-- The entries that were recorded first.
SELECT number, length(body) FROM session_entries WHERE run_no = :run_no AND segment = :segment ORDER BY number LIMIT :limit

-- name: drop_before
-- They make place for newer ones.
DELETE FROM session_entries WHERE run_no = :run_no AND segment = :segment AND number < :first

-- name: sizes
-- Of what was recorded about a run, in that order; of one segment, where it is named. A length is known without its body.
SELECT e.entry_no, length(e.body)
FROM session_entries e JOIN runs r ON r.run_no = e.run_no
WHERE r.run_id = :run_id AND e.entry_no > :after AND (:segment IS NULL OR e.segment = :segment)
ORDER BY e.entry_no LIMIT :limit

-- name: entries
-- The same entries as far as one of them, whole.
SELECT e.segment, e.number, e.kind, e.body, e.recorded_wall_ms
FROM session_entries e JOIN runs r ON r.run_no = e.run_no
WHERE r.run_id = :run_id AND e.entry_no > :after AND e.entry_no <= :last
  AND (:segment IS NULL OR e.segment = :segment)
ORDER BY e.entry_no

-- name: session_of
-- The session of a run.
SELECT s.session_id FROM runs r JOIN sessions s ON s.session_no = r.session_no WHERE r.run_id = :run_id
