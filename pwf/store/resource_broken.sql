-- Managed resources whose rows can't be handled.

-- name: break_resource
-- One whose rows can't be handled.
UPDATE resources SET hold = 'broken', hold_detail = :detail WHERE resource_no = :resource_no AND gone_wall_ms IS NULL
