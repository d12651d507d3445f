"""The embedded model, which needs no provider: it calls the declared tools and repeats their results."""
