"""The finer points of this wire: the assistant's message with all its slots, and calls that arrive in pieces."""
