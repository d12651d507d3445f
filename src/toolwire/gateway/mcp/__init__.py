"""Tools that live in MCP servers: offered to models beside the client's own, and run by the gateway itself."""
