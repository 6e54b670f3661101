-- Forks: effects that other runs of the same tree have made or will make.

-- name: made
-- Effects of other runs of its tree that happened, or may have. Those that it comes from are not among them.
WITH RECURSIVE line(run_id) AS (
  SELECT :run_id UNION SELECT coalesce(r.forked_from, r.restarted_from) FROM line l JOIN runs r ON r.run_id = l.run_id)
SELECT r.run_id, e.node, e.visit, e.part FROM runs r JOIN effects e ON e.entity_no = r.run_no
WHERE r.tree_root = (SELECT coalesce(tree_root, run_id) FROM runs WHERE run_id = :run_id)
  AND r.run_id NOT IN (SELECT run_id FROM line WHERE run_id IS NOT NULL)
  AND e.status IN ('applied', 'abandoned', 'applying', 'ambiguous')
ORDER BY r.run_no, e.reserved_wall_ms, e.node, e.visit, e.part

-- name: going_on
-- Itself and other runs of its tree that have not ended, and where they are. Those that it comes from are not among them.
WITH RECURSIVE line(run_id) AS (
  SELECT coalesce(forked_from, restarted_from) FROM runs WHERE run_id = :run_id
  UNION SELECT coalesce(r.forked_from, r.restarted_from) FROM line l JOIN runs r ON r.run_id = l.run_id)
SELECT r.run_id, r.definition_id, r.node FROM runs r
WHERE (r.run_id = :run_id OR r.tree_root = (SELECT coalesce(tree_root, run_id) FROM runs WHERE run_id = :run_id))
  AND r.run_id NOT IN (SELECT run_id FROM line WHERE run_id IS NOT NULL)
  AND r.ended_wall_ms IS NULL ORDER BY r.run_no
