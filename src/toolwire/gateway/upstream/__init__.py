"""The client for providers: HTTP/1.1 over kept-alive connections, faults as values. See docs/decisions/0008."""
