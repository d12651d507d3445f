"""Joins the codecs of a client and a provider: `translate.py` for a body or stream, `exchange.py` for a call."""
