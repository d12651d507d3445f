"""The version of this package, the same as in `pyproject.toml`."""

from __future__ import annotations

VERSION = "0.1.0"
