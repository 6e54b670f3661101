"""Runs: their admission, recovery and supervision, one supervisor for each live run, and the clock that timers go by.

Knows the queue, the pool of processes and the store's commands for runs. Knows no client.
"""
