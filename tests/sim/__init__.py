"""The whole daemon in one process on virtual time: one seed decides everything and replays exactly.

`python -m tests.sim SEED` runs one seed with its trace; `--campaign N` runs many.
"""
