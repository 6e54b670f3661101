"""Every message that two processes exchange, what a graph is, and which step follows an outcome.

Knows shapes alone: whoever sends or receives them stands in another package.
"""
