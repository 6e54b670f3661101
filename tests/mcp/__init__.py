"""`pwf mcp`: the tools behind the official client, against a daemon that the test writes."""
