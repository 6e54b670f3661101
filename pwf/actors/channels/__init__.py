"""Channels: ways to reach people outside. One supervised process for each that is configured.

Knows the store and the port of the adapters; nothing of any service.
"""
