"""Commands that show what requests use."""
