"""The database: one `.sql` and one `.py` for each family of tables, and the one thread that writes.

Each operation is a plain function of a transaction and of what is asked. Knows the protocol and the clock that it is
given. Knows no process, no socket and no workflow code.
"""
