-- What wakes resources by a change of files.

-- name: watching
-- The next resources that watch anything.
SELECT resource_no, watch FROM resources
WHERE watch IS NOT NULL AND gone_wall_ms IS NULL AND resource_no > :after ORDER BY resource_no LIMIT :limit

-- name: watch
-- What one of them watches now.
SELECT watch FROM resources WHERE resource_no = :resource_no AND watch IS NOT NULL AND gone_wall_ms IS NULL
