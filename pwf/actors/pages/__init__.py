"""Keeps the server of the answer pages running, where the configuration says so.

Knows nothing of pages or decisions."""
