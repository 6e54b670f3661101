-- A person's word on an effect of a managed resource.

-- name: by_name
-- The resource with this uid.
SELECT resource_no FROM resources WHERE uid = :uid

-- name: ambiguous
-- Those that nobody knows about.
SELECT part FROM effects WHERE entity_no = :resource_no AND status = 'ambiguous'
