"""Measuring the gateway over real sockets, beside a floor and beside other gateways: `make bench-gateway`."""
