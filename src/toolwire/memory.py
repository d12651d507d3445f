"""Turns of a model as only their maker can use them, for clients whose protocol has no slot for seals."""
