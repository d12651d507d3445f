"""The finer points of this wire: media, the provider's own tools, cache breakpoints, thinking."""
