"""The gateway's own HTTP/1.1 server. `ClientRequest` is the interface between it and the gateway."""
