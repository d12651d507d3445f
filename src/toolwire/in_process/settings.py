"""The configuration of a program: that of the gateway, without what needs a server or a store."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.configuration.load import open_config_file, read_config, read_opened_config
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.features.limits.settings import LimitSettings
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.settings.config import Config, StoreSettings
from toolwire.gateway.settings.problems import ConfigError, Problem
from toolwire.gateway.settings.providers import KEY_IN_FILE
from toolwire.gateway.settings.toml_text import Toml, write_table
from toolwire.gateway.surfaces.console.settings import ConsoleSettings

ConfigSource: TypeAlias = str | PathLike[str] | Mapping[str, Toml] | None
SERVER_SETTINGS: Mapping[str, object] = {"log_format": "none", "retries": 0, "watch_cache": False}
"""The SDK tries again itself, and the program has its own log."""
PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""The HTTP library reads them, unless the program says otherwise (`proxy`, `mounts`, `trust_env`)."""


def read_program_config(source: ConfigSource, environ: Mapping[str, str]) -> Config:
    """The configuration of a file, of tables as in a file, or for None of the file that `TOOLWIRE_CONFIG` names or that
    is in the user's own folder, and the environment. A file of the working folder is used only if it is named. Raises
    ConfigError."""
    environ = {name: value for name, value in environ.items() if name.lower() not in PROXY_VARIABLES}
    if isinstance(source, Mapping):
        text = "".join(_write_tables(source))
        config = read_config(text, None, environ, SERVER_SETTINGS, EMPTY_MAPPING)
        config = replace(config, warnings=tuple(one for one in config.warnings if one.message != KEY_IN_FILE[0]))
    else:
        file = open_config_file(Path(source) if source is not None else None, environ, lambda found: False)
        config = read_opened_config(file, environ, SERVER_SETTINGS)
    _refuse_server_features(config)
    return leave_out_server(config)


def leave_out_server(config: Config) -> Config:
    """Without client keys, store, console and costs."""
    server = replace(config.server, keys=(), allowed_hosts=())
    config = replace(config, server=server, store=StoreSettings(url="none"))
    return config.with_section(ConsoleSettings(enabled=False)).with_section(CostSettings(enabled=False))


def _write_tables(tables: Mapping[str, Toml]) -> list[str]:
    lists = {name: value for name, value in tables.items() if isinstance(value, list)}
    single = {name: value for name, value in tables.items() if isinstance(value, dict)}
    unknown = [name for name in tables if name not in lists and name not in single]
    if unknown:
        what = f"`{unknown[0]}` is not a table"
        raise ConfigError([Problem(location=unknown[0], message=what, hint="write tables as in toolwire.toml")], "")
    texts = [write_table((name,), value) for name, value in single.items()]
    rows = [(name, row) for name, some in lists.items() for row in some if isinstance(row, dict)]
    return texts + [write_table((name,), row).replace(f"[{name}]", f"[[{name}]]", 1) for name, row in rows]


def _refuse_server_features(config: Config) -> None:
    """A limit that nobody counts, or a tool that nobody runs, must not be left out in silence."""
    of_keys = LimitSettings().add_keys(config.server.keys).limits  # a program has no client keys
    asked = {
        "limits": any(limit not in of_keys for limit in config.section(LimitSettings).limits),
        "mcp": bool(config.section(McpSettings).servers),
    }
    hint = "run `toolwire serve` with this file and point the SDK at it, or give the program a file without this table"
    problems = [
        Problem(location=name, message=f"`{name}` works only in a running gateway, not inside of a program", hint=hint)
        for name, is_asked in asked.items()
        if is_asked
    ]
    if problems:
        raise ConfigError(problems, str(config.file or ""))
