"""Cases as data, and the player of them: what went wrong elsewhere must not happen here.

`README.md` beside this file is the format; `play` runs one case against any translator or gateway.
"""
