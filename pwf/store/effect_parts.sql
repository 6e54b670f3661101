-- Effects that code makes in mid-step, each under a key of its own: the part.

-- name: part
-- What is known of one.
SELECT mode, observable, status, generation, fingerprint, output, output_digest,
  (SELECT size FROM contents WHERE digest = output_digest), ref, error
FROM effects WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = :part

-- name: count_parts
-- How many a visit has.
SELECT count(*) FROM effects WHERE entity_no = :entity_no AND node = :node AND visit = :visit

-- name: add_part
-- The row, before the outside world is touched.
INSERT INTO effects(entity_no, node, visit, part, type, mode, observable, status, generation, attempts, request, request_crc32,
  request_digest, fingerprint, reserved_wall_ms)
VALUES (:entity_no, :node, :visit, :part, :type, :mode, :observable, 'applying', :generation, 1, :request, :request_crc32,
  :request_digest, :fingerprint, :now)

-- name: begin_again
-- One that surely did not happen, or may happen again. A try that was settled leaves nothing to the next one.
UPDATE effects SET type = :type, mode = :mode, observable = :observable, status = 'applying', generation = :generation,
  attempts = attempts + 1, ref = NULL, error = NULL, settled_by = NULL, note = NULL, settled_wall_ms = NULL
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = :part

-- name: settle_part
-- What its process says of it; zero rows when it is not open.
UPDATE effects SET status = :status, output = :output, output_crc32 = :output_crc32, output_digest = :output_digest, ref = :ref,
  error = :error, settled_wall_ms = :now
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = :part AND status = 'applying'

-- name: note_error
-- Its outcome is unknown, and this is why.
UPDATE effects SET error = :error
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = :part AND status = 'applying'

-- name: note_end
-- The process that began them has ended like this, and said nothing of them.
UPDATE effects SET error = :error
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part <> '' AND status = 'applying'
  AND generation = :generation AND error IS NULL

-- name: open_manual
-- Those of a visit that may have happened and must not be repeated blindly.
SELECT part, observable, status, generation FROM effects
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part <> '' AND mode = 'manual'
  AND status IN ('applying', 'ambiguous')

-- name: abandoned
-- Those of a visit that a person gave up.
SELECT part, note FROM effects
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part <> '' AND status = 'abandoned'

-- name: leave_ambiguous
-- Nobody can tell about those of a visit, and a person is asked.
UPDATE effects SET status = 'ambiguous'
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part <> '' AND mode = 'manual' AND status = 'applying'

-- name: close_idempotent
-- The try is over: what was being applied may have happened, and does no harm when it is run again.
UPDATE effects SET status = 'failed', settled_wall_ms = :now
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part <> '' AND mode = 'idempotent' AND status = 'applying'

-- name: settle_by_word
-- A person has said what became of an effect that is ambiguous; zero rows where it is not. A part keeps its output.
UPDATE effects SET status = :status, ref = coalesce(:ref, ref), settled_by = :settled_by, note = :note, settled_wall_ms = :now,
  output = iif(part = '', NULL, :output), output_crc32 = iif(part = '', NULL, :output_crc32),
  output_digest = iif(part = '', NULL, :output_digest), error = iif(:status = 'applied', NULL, error)
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = :part AND status = 'ambiguous'

-- name: observe_again
-- A person has it observed once more; zero rows where it is not ambiguous, or its code can not observe it.
UPDATE effects SET status = 'applying'
WHERE entity_no = :entity_no AND node = :node AND visit = :visit AND part = :part AND status = 'ambiguous' AND observable
