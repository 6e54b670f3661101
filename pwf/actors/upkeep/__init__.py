"""The state folder: retention, compaction, backup, and restoring one.

Knows the database's file and the store's commands for it. Never holds up an admission.
"""
