"""The judge for coding agents, as tools of the Model Context Protocol. Only server.py imports `mcp`."""
