"""Commands that run the gateway, and that show or change what it is configured with."""
