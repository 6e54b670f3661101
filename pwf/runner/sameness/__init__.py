"""Whether a process is after a run as it was before, so that it may have another one.

Knows the process it is in and the project's modules. Changes nothing of either, and knows nothing of a run.
"""
