"""The processes that execute workflow code: one run generation at a time, which proposes each step's end to the daemon.

Rooms in order, each using only those before it: base, kinds, `sameness` (a process as it was before), `hangup` and
`engine`, lab, `generation` (from a launch to the leaving), load, spawn.
"""
