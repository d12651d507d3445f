"""The gateway: the only floor with sockets, files and a clock. Any client's protocol in, any provider's out."""
