"""Tools of MCP servers, which the gateway offers to models and runs itself."""
