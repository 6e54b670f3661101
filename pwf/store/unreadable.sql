-- Runs of which a row can't be read.

-- name: may_go_on
-- A run that is due, has a process, or says that it has one.
SELECT 1 WHERE EXISTS (SELECT 1 FROM run_queue WHERE run_no = :run_no)
  OR EXISTS (SELECT 1 FROM runners WHERE entity_no = :run_no)
  OR EXISTS (SELECT 1 FROM runs WHERE run_no = :run_no AND status IN ('queued', 'running'))

-- name: name_entity
-- An entity by its number, where its name or kind may be what can't be read.
UPDATE entities SET kind = iif(EXISTS (SELECT 1 FROM runs WHERE run_no = :run_no), 'run', kind), name = coalesce((SELECT run_id FROM runs WHERE run_no = :run_no
    AND run_id GLOB '[0-9A-Za-z]*' AND run_id NOT GLOB '*[^-_.0-9A-Za-z]*'), 'unreadable-' || :run_no)
WHERE entity_no = :run_no

-- name: forget_process
-- A process whose identity can't be read is none that may be signalled.
UPDATE runners SET state = 'ending', pid = NULL, start_tick = NULL, boot_id = NULL, session = NULL,
  generation = (SELECT generation FROM entities WHERE entity_no = :run_no)
WHERE entity_no = :run_no
