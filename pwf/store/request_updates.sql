-- What the holder of a request says of its work.

-- name: said
-- How often the holder has said how its work goes.
SELECT updates FROM requests WHERE request_id = :request_id

-- name: say
-- Once more; and it works on the request.
UPDATE requests SET updates = updates + 1, lost = 0 WHERE request_id = :request_id
