"""The steps that adapt a client's request to a provider, in the order of `adapt_request.py`.

They are pure functions on the internal form, driven by the provider's `Constraints`. A step that has nothing to do
returns the very object it was given, so that an unchanged request is written back verbatim.
"""
