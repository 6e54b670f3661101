"""The daemon: one trio program of actors.

Each room below is a package of its own. A room may use the rooms that stand before it in this order, never those after:
base, code, processes, claim, runs, resources, upkeep, operations, door. `daemon` and `wiring` may use all of them.
"""
