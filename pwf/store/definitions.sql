-- Definitions: what runs are bound to, once per digest.

-- name: add_definition
-- A definition never changes under its digest.
INSERT INTO definitions(definition_id, workflow, root, path, graph, packages, warnings, created_wall_ms)
VALUES (:definition_id, :workflow, :root, :path, :graph, :packages, :warnings, :now) ON CONFLICT DO NOTHING

-- name: known
-- Whether a definition is stored.
SELECT 1 FROM definitions WHERE definition_id = :definition_id

-- name: add_source
-- One recorded file.
INSERT INTO definition_sources(definition_id, path, kind, module, digest, size)
VALUES (:definition_id, :path, :kind, :module, :digest, :size) ON CONFLICT DO NOTHING

-- name: sources
-- The recorded files.
SELECT path, kind, module, digest, size FROM definition_sources WHERE definition_id = :definition_id ORDER BY path, kind

-- name: root_of
-- Where the definition's project stands.
SELECT root, path FROM definitions WHERE definition_id = :definition_id

-- name: whole
-- All of a definition but its graph and its files.
SELECT root, path, packages, warnings FROM definitions WHERE definition_id = :definition_id
