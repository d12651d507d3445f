"""What the gateway keeps between requests, in a file or in a database that several gateways share."""
