"""The gateway of llm-rosetta, with a provider for every kind of place and a model for every alias."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolwire.conformance.targets.table import alias, read_table
from toolwire.conformance.targets.target import Route, Sources, Target

PROGRAM = "llm-rosetta-gateway"
TABLE = read_table("rosetta")


def version(sources: Sources) -> str:
    return sources.said(PROGRAM, "--version").rpartition(" ")[2]


def command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    providers = {
        place.kind: {"type": place.kind, "base_url": origin + place.base, "api_key": "test"} for place in TABLE.places
    }
    settings = {**TABLE.settings, "providers": providers, "models": dict(_model(*pair) for pair in models)}
    file = folder / "config.jsonc"
    file.write_text(json.dumps(settings, indent=1))
    return [PROGRAM, "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--no-banner"]


def _model(protocol: str, model: str) -> tuple[str, dict[str, Any]]:
    place = TABLE.place(protocol, model)
    return alias(protocol, model), {"provider": place.kind, "upstream_model": model, **place.settings}


def route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(alias(provider, model))


TARGET = Target(
    name="llm-rosetta",
    title=TABLE.title,
    version=version,
    command=command,
    route=route,
    environment=TABLE.environment,
    ready="/health",
)
