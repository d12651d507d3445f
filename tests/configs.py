"""Configurations as tests read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.configuration.load import open_config_file, read_opened_config
from toolwire.gateway.settings.config import Config


def load_config(
    file: str | Path | None,
    environ: Mapping[str, str],
    server_overrides: Mapping[str, object] = EMPTY_MAPPING,
    routes: Mapping[str, str] = EMPTY_MAPPING,
) -> Config:
    """The configuration of a file (None: the default one) and the environment. Raises ConfigError."""
    return read_opened_config(open_config_file(file, environ), environ, server_overrides, routes)
