"""Ready-made effects: a request that says what is wanted, how to apply it, and how to find out whether it happened.

Owns the outside systems' manners, one file each: `files`, `http`, `git`, `sql`, `mail`, `command`. Knows the authoring
API only, so that each file is also an example to copy (docs/effects.md).
"""
