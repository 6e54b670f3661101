"""The runner's half of the crash lab: planned ends, stand-ins for effects, and a watch on pure functions.

Extends the engine. The engine doesn't know it.
"""
