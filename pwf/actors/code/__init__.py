"""What a workflow's name means: project, file, interpreter, definition, and the schemas that bind values.

Knows folders and the resolver's answers. Knows no live run, and never loads workflow code in the daemon.
"""
