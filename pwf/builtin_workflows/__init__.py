"""Workflows that come with pwf: found by name after the project's and the user's own, and written as anybody's.

Each file imports `pwf`, msgspec and trio alone, so that a run of it pins that file, and what it includes.
"""
