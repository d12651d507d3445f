"""The HTTP/1.1 client for providers: `client.UpstreamClient` is its interface. See docs/decisions/0008."""
