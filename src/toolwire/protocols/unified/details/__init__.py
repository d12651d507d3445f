"""The finer points of this wire: the short ways."""
