"""For all tests: generated examples are the same in every run, and a slow machine is no failure."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

from material import CORPUS

settings.register_profile("toolwire", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "toolwire"))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not CORPUS.exists():
        terminalreporter.write_line("The recorded corpus is not here: the tests that read it were left out.")
