"""Who serves a home: the kernel's lock on a file decides, the epoch in the store fences late writes.

Knows the lock file and the store's claim. Knows no run: which leases to renew, it is told.
"""
