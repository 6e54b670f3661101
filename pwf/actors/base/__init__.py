"""What every actor is made of: the store's actor, inboxes, changed keys, supervision, the log, the socket stream.

Knows the store, the protocol, and what a process is that the daemon keeps. Knows no run, no runner and no client.
"""
