"""The gateway's own HTTP/1.1 server and its client for providers. `ClientRequest` and `UpstreamClient` are the
interfaces. See docs/decisions/0008 and 0011."""
