"""Processes of workflow code: zygotes, templates, runners, and the proof that every process of a runner is dead.

Knows pids, sockets and definitions. Knows nothing of a run but the name that its processes bear.
"""
