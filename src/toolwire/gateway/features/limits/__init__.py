"""Limits of requests, tokens and dollars, and the counters that hold them."""
