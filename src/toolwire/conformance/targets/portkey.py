"""Portkey's gateway. It has no configuration: each request says in its headers where it goes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from toolwire.conformance.targets.table import read_table
from toolwire.conformance.targets.target import NotInstalled, Route, Sources, Target

PROGRAM = "gateway"
PACKAGE = "@portkey-ai/gateway"
TABLE = read_table("portkey")


def version(sources: Sources) -> str:
    """It does not say, but its package does. Its program has a common name, so the package is looked at."""
    for folder in Path(sources.find(PROGRAM)).resolve().parents:
        if (said := folder / "package.json").is_file():
            package = json.loads(said.read_bytes())
            if package.get("name") == PACKAGE:
                return str(package["version"])
    raise NotInstalled(PACKAGE)


def command(port: int, _origin: str, _folder: Path, _models: Sequence[tuple[str, str]]) -> Sequence[str]:
    return [PROGRAM, f"--port={port}", "--headless"]


def route(client: str, provider: str, model: str, origin: str) -> Route | str:
    if obstacle := TABLE.obstacle(client, provider):
        return obstacle
    place = TABLE.place(provider, model, client)
    config = {"provider": place.kind, "custom_host": origin + place.base, "api_key": "test", **place.settings}
    return Route(model, {"x-portkey-config": json.dumps(config)})


TARGET = Target(
    name="portkey",
    title=TABLE.title,
    version=version,
    command=command,
    route=route,
    environment=TABLE.environment,
)
