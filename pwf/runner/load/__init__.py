"""Code identity: reading, pinning and executing a workflow's exact bytes, and the resolver that records them.

Knows files and modules. Knows no run and no socket.
"""
