-- Settings of runs that were changed. A run without a row has them as its workflow declares them.

-- name: put_settings
-- A change replaces them.
INSERT INTO settings(run_no, scope, entry, change, value, changed_wall_ms)
VALUES (:run_no, :scope, :entry, :change, :value, :now)
ON CONFLICT(run_no, scope) DO UPDATE SET entry = excluded.entry, change = excluded.change, value = excluded.value, changed_wall_ms = excluded.changed_wall_ms

-- name: keep
-- Those that the present visit has seen, unless it has seen earlier ones.
UPDATE settings SET kept_node = :node, kept_visit = :visit, kept_change = :change, kept_value = :value
WHERE run_no = :run_no AND scope = :scope AND (kept_node IS NOT :node OR kept_visit IS NOT :visit)
