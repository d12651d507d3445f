"""`toolwire.toml`: found, read, and checked as a whole, so that every mistake is told at once with its line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolwire.gateway.config import Config
from toolwire.ir import NOTHING


def load(file: str | Path | None, environ: Mapping[str, str], server: Mapping[str, object] = NOTHING) -> Config:
    """The configuration out of a file (found as documented when None) and the environment; raises `Problems`. `server`
    holds fields of `[server]` that the command line sets over the file."""
    return Config(file=Path(file) if file else None)
