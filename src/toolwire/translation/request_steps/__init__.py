"""Repairs and mappings between reading and writing: pure steps on the internal form, driven by the target's rules.

A step that has nothing to do gives back the very object it was given, so that an untouched request stays verbatim.
"""
