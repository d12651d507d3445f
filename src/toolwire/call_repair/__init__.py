"""Repairs calls of models that call tools badly: names, arguments that are not quite JSON, values of another type.

Every repair is safe in the sense of the tool's schema, and reported. Nothing is guessed, and nothing that was cut off
is completed.
"""
