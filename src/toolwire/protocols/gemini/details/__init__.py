"""The finer points of this wire: media, grounding, streamed arguments, framing, settings, and the writing of parts."""
