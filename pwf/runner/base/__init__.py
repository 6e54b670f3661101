"""What every step is made of: the two sockets to the daemon, a step's shape, its output, its failure, its processes.

Knows the protocol. Knows no node kind and no way to load code.
"""
