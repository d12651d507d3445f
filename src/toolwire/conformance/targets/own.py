"""Toolwire itself: a provider for each protocol, and models by `PROVIDER/MODEL`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from toolwire.conformance.targets.target import Route, Sources, Target

PROGRAM = "toolwire"
SERVER = '[server]\nretries = 0\nrest_after = 1000000\nlog = "none"\n\n[store]\nurl = "sqlite://{store}"\n'
TABLE = tomllib.loads((files("toolwire.conformance.targets") / "own.toml").read_text("utf-8"))
QUIRKS: dict[tuple[str, str], str] = {(row["protocol"], row["model"]): row["quirk"] for row in TABLE["servers"]}
RESERVES: dict[tuple[str, str], str] = {(row["protocol"], row["model"]): row["reserve"] for row in TABLE["reserves"]}


def version(sources: Sources) -> str:
    return sources.said(PROGRAM, "--version").rpartition(" ")[2]


def command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    file = folder / "toolwire.toml"
    providers = {_name(*pair): pair for pair in models}
    lines = [_provider(name, *pair, origin) for name, pair in providers.items()]
    rules = [_rule(*pair) for pair in models if pair in RESERVES]
    file.write_text("\n".join([SERVER.format(store=folder / "store.db"), *lines, *rules]))
    return [PROGRAM, "serve", "--config", str(file), "--port", str(port)]


def _provider(name: str, protocol: str, model: str, origin: str) -> str:
    quirk = QUIRKS.get((protocol, model))
    said = f'quirks = ["{quirk}"]\n' if quirk else ""
    return f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{origin}"\n{said}'


def _rule(protocol: str, model: str) -> str:
    name = _name(protocol, model)
    fallback = f"{name}/{RESERVES[protocol, model]}"
    return f'[models."{model}"]\nprovider = "{name}"\nmodel = "{model}"\nfallbacks = ["{fallback}"]\n'


def _name(protocol: str, model: str) -> str:
    return f"{QUIRKS.get((protocol, model), 'scripted')}-{protocol}"


def route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(model if (provider, model) in RESERVES else f"{_name(provider, model)}/{model}")


TARGET = Target(
    name="toolwire",
    title="Toolwire",
    install="pip install 'toolwire[gateway]'",
    version=version,
    command=command,
    route=route,
    ready="/readyz",
    reaches=tuple(TABLE["reaches"]),
)
