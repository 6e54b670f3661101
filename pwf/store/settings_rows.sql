-- The rows of a run's settings: its own, and those of included workflows.

-- name: settings
-- As they are after their newest changes; what has no row is as the workflow declares it.
SELECT scope, entry, change, value FROM settings WHERE run_no = :run_no

-- name: newest
-- The change of one of them, whatever its entry: changes are numbered through the run.
SELECT change FROM settings WHERE run_no = :run_no AND scope = :scope

-- name: source
-- A run and what it was bound to.
SELECT run_no, definition_id FROM runs WHERE run_id = :run_id

-- name: kept
-- Those that a visit saw first.
SELECT entry, kept_change, kept_value FROM settings WHERE run_no = :run_no AND scope = :scope AND kept_node = :node AND kept_visit = :visit

-- name: has_begun
-- Whether a visit has an effect that has happened, or may have.
SELECT 1 FROM effects WHERE entity_no = :run_no AND node = :node AND visit = :visit AND status IN ('applying', 'applied', 'ambiguous')
LIMIT 1

-- name: let_go
-- The next try sees the newest.
UPDATE settings SET kept_node = NULL, kept_visit = NULL, kept_change = NULL, kept_value = NULL WHERE run_no = :run_no

-- name: inherit
-- A run that goes on from another has that one's settings, as its own change 0, where both declare the same.
INSERT INTO settings(run_no, scope, entry, change, value, changed_wall_ms)
SELECT :run_no, scope, entry, 0, value, :now FROM settings WHERE run_no = :old_no AND scope = :scope AND entry = :entry
