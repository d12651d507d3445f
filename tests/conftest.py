"""For all tests: generated examples are the same in every run, and a slow machine is no failure."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("toolwire", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "toolwire"))
