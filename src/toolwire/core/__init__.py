"""The internal form of requests, answers and streams, and what all protocols share. No protocol, no I/O."""
