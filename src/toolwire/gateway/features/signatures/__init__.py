"""Keys that sign what clients carry for other providers."""
