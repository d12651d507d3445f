"""What requests use: costs, limits, and the prompt cache."""
