-- Reading everything that is stored, to find what is not as it was stored. It scans on purpose.

-- name: values_after
-- A page of all values.
SELECT digest, size, complete FROM contents WHERE digest > :after ORDER BY digest LIMIT :limit

-- name: value_runs
-- The runs that a value belongs to, and what it is of them.
SELECT run_id, iif(input_digest = :digest, 'its input', 'its output') FROM runs
  WHERE input_digest = :digest OR output_digest = :digest
UNION SELECT r.run_id, 'the output of step ' || a.node || ', attempt ' || a.attempt
  FROM attempts a JOIN runs r ON r.run_no = a.run_no WHERE a.output_digest = :digest
UNION SELECT q.run_id, iif(q.prompt_digest = :digest, 'the prompt of request ', 'the answer to request ') || q.request_id
  FROM requests q WHERE q.prompt_digest = :digest OR q.answer_digest = :digest
UNION SELECT r.run_id, 'a message to its session' FROM messages m JOIN runs r ON r.run_no = m.run_no WHERE m.body_digest = :digest
UNION SELECT s.run_id, 'what was submitted for request ' || s.request_id FROM submissions s WHERE s.value_digest = :digest
UNION SELECT r.run_id, iif(e.request_digest = :digest, 'the request', 'the output') || ' of effect ' || e.node || ':' || e.visit || '/' || e.part
  FROM effects e JOIN runs r ON r.run_no = e.entity_no WHERE e.request_digest = :digest OR e.output_digest = :digest
UNION SELECT run_id, 'the output of a child run' FROM former_children WHERE output_digest = :digest
UNION SELECT r.run_id, 'its code ' || s.path
  FROM definition_sources s JOIN runs r ON r.definition_id = s.definition_id WHERE s.digest = :digest

-- name: environments
-- What runs execute in, each named by the digest of its text.
SELECT environment_id, body FROM environments WHERE environment_id > :after ORDER BY environment_id LIMIT :limit

-- name: environment_runs
-- The runs that share an environment.
SELECT run_id FROM runs WHERE environment_id = :id

-- name: definition_runs
-- The runs that share a definition.
SELECT run_id FROM runs WHERE definition_id = :id

-- name: run_ids
-- Every run, by its row.
SELECT run_no, CAST(run_id AS BLOB) FROM runs

-- name: run_names
-- Every run, by its entity: for where the runs themselves can't be read.
SELECT entity_no, CAST(name AS BLOB) FROM entities WHERE kind = 'run'

-- name: run_of_no
-- The id of the run with a number, as it stands there.
SELECT CAST(run_id AS BLOB) FROM runs WHERE run_no = :no

-- name: request_runs
-- The run of a request.
SELECT run_id FROM requests WHERE request_id = :id

-- name: roots
-- Which table or index begins at which page: SQLite's own check names only the page.
SELECT rootpage, type, name FROM sqlite_schema WHERE rootpage > 0
