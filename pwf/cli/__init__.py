"""The commands: one file for each family reads the words, asks the daemon through `pwf.client`, and prints.

Knows views, never the store. A command imports what it needs when it is typed, so that the short ones stay quick.
"""
