-- What `state verify` checks of managed resources: each query lists the uids that break a rule. It scans on purpose.

-- name: reconcile_unowned
-- What is being reconciled has a lease and a process of its own generation.
SELECT r.uid FROM reconcile_queue q JOIN resources r ON r.resource_no = q.resource_no WHERE q.state = 'live' AND NOT EXISTS (
  SELECT 1 FROM entities e JOIN runners p ON p.entity_no = e.entity_no AND p.generation = e.generation
  WHERE e.entity_no = q.resource_no AND e.lease_token IS NOT NULL)

-- name: resource_owned
-- Nobody owns a resource that is not being reconciled.
SELECT r.uid FROM resources r JOIN entities e ON e.entity_no = r.resource_no WHERE e.lease_token IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM reconcile_queue q WHERE q.resource_no = r.resource_no AND q.state = 'live')

-- name: resource_kept_back_due
-- Nothing is due of a resource that is kept back.
SELECT r.uid FROM resources r JOIN reconcile_queue q ON q.resource_no = r.resource_no
WHERE (r.paused = 1 OR r.hold IS NOT NULL) AND q.state <> 'live'

-- name: resource_forgotten
-- A spec that was not reconciled is due, being reconciled, or kept back.
SELECT r.uid FROM resources r WHERE r.gone_wall_ms IS NULL AND r.observed_generation < r.spec_generation
  AND r.paused = 0 AND r.hold IS NULL AND NOT EXISTS (SELECT 1 FROM reconcile_queue q WHERE q.resource_no = r.resource_no)

-- name: resource_gone_open
-- What is gone has nothing open.
SELECT r.uid FROM resources r WHERE r.gone_wall_ms IS NOT NULL AND (r.hold IS NOT NULL
  OR EXISTS (SELECT 1 FROM reconcile_queue q WHERE q.resource_no = r.resource_no)
  OR EXISTS (SELECT 1 FROM effects f WHERE f.entity_no = r.resource_no AND f.status IN ('applying', 'ambiguous')))

-- name: resource_lingers
-- What is to go, and has nothing that keeps it, is due or gone.
SELECT r.uid FROM resources r WHERE r.deleting_wall_ms IS NOT NULL AND r.gone_wall_ms IS NULL
  AND r.paused = 0 AND r.hold IS NULL
  AND NOT EXISTS (SELECT 1 FROM reconcile_queue q WHERE q.resource_no = r.resource_no)
  AND NOT EXISTS (SELECT 1 FROM finalizers f WHERE f.resource_no = r.resource_no)
  AND NOT EXISTS (SELECT 1 FROM effects f WHERE f.entity_no = r.resource_no AND f.status IN ('applying', 'ambiguous'))
  AND (r.children = 'leave' OR NOT EXISTS (
    SELECT 1 FROM runs c WHERE c.called_by = r.resource_no AND c.ended_wall_ms IS NULL))

-- name: child_orphaned
-- A resource that took its children with it has none that goes on.
SELECT DISTINCT s.uid FROM resources s JOIN runs r ON r.called_by = s.resource_no
WHERE s.gone_wall_ms IS NOT NULL AND s.children = 'cancel' AND r.ended_wall_ms IS NULL

-- name: child_stray
-- Whose child a run is, is there, and is a resource.
SELECT r.run_id FROM runs r WHERE r.called_by IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM resources s WHERE s.resource_no = r.called_by)

-- name: child_twice
-- What is left of a child answers for it: under its key there is no run, so what it did is not done again.
SELECT r.run_id FROM former_children f JOIN runs r ON r.called_by = f.resource_no AND r.call_key = f.call_key

-- name: finalizer_stray
-- What is gone has nothing left to finalize.
SELECT DISTINCT r.uid FROM finalizers f JOIN resources r ON r.resource_no = f.resource_no WHERE r.gone_wall_ms IS NOT NULL
