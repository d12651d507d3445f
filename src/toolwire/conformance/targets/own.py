"""Toolwire itself: a provider for each protocol, and models by `PROVIDER/MODEL`."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from toolwire.conformance.targets.target import Route, Sources, Target

PROGRAM = "toolwire"
SERVER = '[server]\nretries = 0\nrest_after = 1000000\nlog = "none"\n\n[store]\nurl = "sqlite://{store}"\n'
QUIRKS: dict[tuple[str, str], str] = {
    (row["protocol"], row["model"]): row["quirk"]
    for row in tomllib.loads((files("toolwire.conformance.targets") / "own.toml").read_text("utf-8"))["servers"]
}


def version(sources: Sources) -> str:
    return sources.said(PROGRAM, "--version").rpartition(" ")[2]


def command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    file = folder / "toolwire.toml"
    providers = {_name(*pair): pair for pair in models}
    lines = [_provider(name, *pair, origin) for name, pair in providers.items()]
    file.write_text("\n".join([SERVER.format(store=folder / "store.db"), *lines]))
    return [PROGRAM, "serve", "--config", str(file), "--port", str(port)]


def _provider(name: str, protocol: str, model: str, origin: str) -> str:
    quirk = QUIRKS.get((protocol, model))
    said = f'quirks = ["{quirk}"]\n' if quirk else ""
    return f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{origin}"\n{said}'


def _name(protocol: str, model: str) -> str:
    return f"{QUIRKS.get((protocol, model), 'scripted')}-{protocol}"


def route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(f"{_name(provider, model)}/{model}")


TARGET = Target(
    name="toolwire",
    title="Toolwire",
    install="pip install 'toolwire[gateway]'",
    version=version,
    command=command,
    route=route,
    ready="/readyz",
    reaches=("011:mistral", "075"),
)
