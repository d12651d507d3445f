"""Measuring, on purpose and by hand: `make bench`. Nothing here runs in the tests."""
