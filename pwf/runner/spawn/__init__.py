"""How a runner comes to be: zygote, template, fork, a fresh process, and what makes a fork unsafe.

Knows everything in the runner, since it starts it. Used by no module: the daemon starts it by its name
(`pwf/actors/processes/zygote.py`).
"""
