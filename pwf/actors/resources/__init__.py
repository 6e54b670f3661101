"""Managed resources: one supervisor for each reconcile that goes on.

Knows the queue, the pool of processes, the store's commands for resources, and how a run is started. Knows no client.
"""
