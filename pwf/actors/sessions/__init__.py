"""The sessions of agents that are attached now: one coordinator each.

Knows the store. Knows no connection: the connection that a session is attached to begins its coordinator, and ends it.
"""
