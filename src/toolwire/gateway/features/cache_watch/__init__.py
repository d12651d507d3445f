"""The prompt cache: what it should have given, and why it did not."""
