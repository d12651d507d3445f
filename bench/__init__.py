"""Measurements, run on purpose (`make bench`), never as tests."""
