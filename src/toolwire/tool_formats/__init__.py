"""Reads tool calls that models write as text: one small reader for each format, and `text_reader`, which finds them.

A format's reader is a pure function of text. `text_reader` decides where a call may stand at all, and how much of a
streamed text must be held back.
"""
