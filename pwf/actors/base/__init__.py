"""What every actor is made of: the store's actor, inboxes, changed keys, supervision, the log, the socket stream.

Knows the store and the protocol. Knows no run, no process and no client.
"""
