"""Prompts that cannot fit are refused early."""
