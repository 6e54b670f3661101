"""`pwf mcp`: the tools of pwf for any MCP host, on the official SDK (the extra `pwf-workflows[mcp]`).

A process of its own, and a client of the daemon like any other. Promises: it offers what its grant allows and nothing
else; no call outlasts the grant's bound; a call that a host gave up has no effect of its own, and its repeat adopts.
Never of the model: a person's decision, the word on an uncertain effect, a budget, other code. Imported by `pwf mcp`
alone.
"""
