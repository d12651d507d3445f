"""The console: a page of the gateway that shows both sides of every exchange, kept in memory only."""
