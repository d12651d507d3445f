"""Toolwire itself: a provider for each protocol, and models by `PROVIDER/MODEL`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolwire.conformance.targets.target import Route, Sources, Target

PROGRAM = "toolwire"
SERVER = '[server]\nretries = 0\nrest_after = 1000000\nlog = "none"\n\n[store]\nurl = "sqlite:{store}"\n'


def version(sources: Sources) -> str:
    return sources.said(PROGRAM, "--version").rpartition(" ")[2]


def command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    file = folder / "toolwire.toml"
    protocols = dict.fromkeys(protocol for protocol, _ in models)
    file.write_text(
        SERVER.format(store=folder / "store.db") + "".join(_provider(protocol, origin) for protocol in protocols)
    )
    return [PROGRAM, "serve", "--config", str(file), "--port", str(port)]


def _provider(protocol: str, origin: str) -> str:
    return f'\n[providers.{_name(protocol)}]\nprotocols = ["{protocol}"]\nbase_url = "{origin}"\napi_key = "test"\n'


def _name(protocol: str) -> str:
    return f"scripted-{protocol}"


def route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(f"{_name(provider)}/{model}")


TARGET = Target(
    name="toolwire",
    title="Toolwire",
    install="pip install 'toolwire[gateway]'",
    version=version,
    command=command,
    route=route,
    ready="/readyz",
)
