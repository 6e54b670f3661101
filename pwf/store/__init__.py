"""The database: one `.sql` and one `.py` for each family of tables, and the one thread that writes.

Each operation is a plain function of a transaction and of what is asked. Knows the protocol and the clock that it is
given. Knows no process, no socket and no workflow code. A family that only reads or calls others has no `.sql`.

Where to look first:

- a command's transaction: `executor` and `loop_share` (which thread), `batch` (one COMMIT), `tx` (fence,
  lease, event), `once` and `receipts` (repeats), `queries` (named SQL);
- the file: `database`, `schema.sql`, `migrate`, `home`, `new_file`, `space`, `ballast`;
- what any entity needs: `entity_kinds` (what a kind brings), `kinds` (the kinds that are served), `events`, `values`;
- a run's life: `runs`, `restart`, `fork` and `adoption` (made), `queue` (admitted), `launch` (begun), `transitions`
  (a runner's proposal, decided), `moves` (each step of it), `change` and `state` (how a command writes to a run),
  `place` (where it stands);
- its processes: `custody_rows` and `custody` (recorded, given up), `runners` (owner), `runner_end` (settled after it),
  `daemon` (the claim, and what an earlier daemon left);
- people: `control` (pause, resume, cancel), `requests` (a question's answer), `effects` (a word on an unknown outcome),
  `at_run` (a run as people name it);
- what can't be handled: `broken` (while it serves), `unreadable` (at a start);
- reads: `reading` (the reader's thread), `read_runs` (views), `explain` (the reason), `printed` (output files);
- upkeep: `retention`, `backup`, `restore`, `verify` with `run_rules` and `run_kind` (rules), `soundness` (every byte).
"""
