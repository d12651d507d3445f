"""The configuration of a program: that of the gateway, without what needs a server or a store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TypeAlias

from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.configuration.load import open_config_file, read_config, read_opened_config
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.features.limits.settings import LimitSettings
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.settings.config import Config, StoreSettings, Timeouts
from toolwire.gateway.settings.problems import ConfigError, Problem
from toolwire.gateway.settings.providers import KEY_IN_FILE
from toolwire.gateway.settings.toml_text import Toml, write_table
from toolwire.gateway.surfaces.console.settings import ConsoleSettings

ConfigSource: TypeAlias = str | PathLike[str] | Mapping[str, Toml] | None
WITHOUT_LIMIT = Timeouts(connect=0, first_byte=0, between_bytes=0, whole_answer=0)
"""The program's own hold. `all_attempts` stays: without it no fallback would be asked in time."""
UNLIMITED = 1 << 30
"""Requests of a program at the same time: its SDK and its own code limit them."""
SERVER_TABLES = ("console", "costs", "counters", "store")
PROGRAM_KEYS = frozenset(
    {"max_body", "max_memory", "heartbeat", "cooldown_after", "cooldown", "secret_env", "loopback"}
)
"""Those of `[server]` that a program has, too."""
PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy", "no_proxy"})
"""The HTTP library reads them, unless the program says otherwise (`proxy`, `mounts`, `trust_env`)."""


def read_program_config(source: ConfigSource, environ: Mapping[str, str]) -> Config:
    """The configuration of a file, of tables as in a file, or for None of the file that `TOOLWIRE_CONFIG` names or that
    is in the user's own folder, and the environment. A file of the working folder is used only if it is named. Raises
    ConfigError."""
    environ = {name: value for name, value in environ.items() if name.lower() not in PROXY_VARIABLES}
    if isinstance(source, Mapping):
        text = "".join(_write_tables(source))
        config = read_config(text, None, environ, EMPTY_MAPPING, EMPTY_MAPPING)
        config = replace(config, warnings=tuple(one for one in config.warnings if one.message != KEY_IN_FILE[0]))
        _refuse(_list_server_tables(source), "")
    else:
        file = open_config_file(Path(source) if source is not None else None, environ, lambda found: False)
        config = read_opened_config(file, environ)
    _refuse(_list_server_features(config), str(config.file or ""))
    return leave_out_server(config)


def leave_out_server(config: Config) -> Config:
    """Without client keys, store, console and costs. The SDK tries again itself, and the program has its own log."""
    timeouts = replace(WITHOUT_LIMIT, all_attempts=config.server.timeouts.all_attempts)
    server = replace(
        config.server,
        keys=(),
        store_keys=False,
        allowed_hosts=(),
        timeouts=timeouts,
        max_requests=UNLIMITED,
        on_disconnect="cancel",
        retries=0,
        log_format="none",
        watch_cache=False,
    )
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


def _list_server_features(config: Config) -> list[str]:
    """A limit that nobody counts, a tool that nobody runs, or a rule for a key that nobody has must not be left out in
    silence."""
    of_keys = LimitSettings().add_keys(config.server.keys).limits  # a program has no client keys
    asked = {
        "limits": any(limit not in of_keys for limit in config.section(LimitSettings).limits),
        "mcp": bool(config.section(McpSettings).servers),
    }
    for_keys = [f"policy.{number}" for number, rule in enumerate(config.policy) if rule.key or rule.team]
    return [name for name, is_asked in asked.items() if is_asked] + for_keys


def _list_server_tables(tables: Mapping[str, Toml]) -> list[str]:
    """In tables that are only for this program. From a file, which a gateway may have, too, they are left out."""
    server = tables.get("server")
    keys = [f"server.{key}" for key in server if key not in PROGRAM_KEYS] if isinstance(server, dict) else []
    return [name for name in SERVER_TABLES if name in tables] + keys


def _refuse(names: Sequence[str], file: str) -> None:
    hint = "run `toolwire serve` with it and point the SDK there, or leave it out for the program"
    problems = [
        Problem(location=name, message=f"`{name}` works only in a running gateway, not inside of a program", hint=hint)
        for name in names
    ]
    if problems:
        raise ConfigError(problems, file)
