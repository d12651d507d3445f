"""Agents of others, run against the gateway: what each needs is a file of data, laid out by what stands here."""
