"""The processes that execute workflow code: one run generation each, which proposes every step's end to the daemon.

Rooms in order, each using only those before it: base, kinds, `hangup` and `engine`, lab, `generation`, load, spawn.
"""
