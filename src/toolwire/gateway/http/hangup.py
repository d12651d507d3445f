"""SIGHUP has two meanings: an operator asks to read the configuration again, or the terminal's window was closed."""

from __future__ import annotations

import os
import sys


class LogTerminal:
    def __init__(self) -> None:
        self._was_open = sys.stderr.isatty()

    def is_closed(self) -> bool:
        """Was its window closed? Nobody sees the gateway any more, and it would keep its port."""
        return self._was_open and not os.isatty(sys.stderr.fileno())
