-- The end of a managed resource.

-- name: effect_unsettled
-- Nobody knows yet whether an effect of it happened.
SELECT 1 FROM effects WHERE entity_no = :resource_no AND status IN ('applying', 'ambiguous') LIMIT 1

-- name: unsettled_keys
-- Those that a person gives up with it.
SELECT part FROM effects WHERE entity_no = :resource_no AND status IN ('applying', 'ambiguous')

-- name: abandon_effects
-- They may have happened.
UPDATE effects SET status = 'abandoned', settled_by = :by, settled_wall_ms = :now
WHERE entity_no = :resource_no AND status IN ('applying', 'ambiguous')
