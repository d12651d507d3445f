"""LiteLLM's proxy, with a deployment for every model behind every protocol."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolwire.conformance.targets.table import alias, read_table
from toolwire.conformance.targets.target import Route, Sources, Target

PROGRAM = "litellm"
TABLE = read_table("litellm")


def version(sources: Sources) -> str:
    """Its package says, as the program itself loads for long before it speaks."""
    python = Path(sources.find(PROGRAM)).resolve().with_name("python")
    return sources.said(str(python), "-c", "from importlib.metadata import version; print(version('litellm'))")


def command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    deployments = [_deployment(protocol, model, origin) for protocol, model in models]
    file = folder / "litellm.yaml"
    file.write_text(json.dumps({"model_list": deployments, **TABLE.settings}, indent=1))  # JSON is YAML
    return [PROGRAM, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]


def _deployment(protocol: str, model: str, origin: str) -> dict[str, Any]:
    place = TABLE.place(protocol, model)
    to = {"model": f"{place.kind}/{model}", "api_base": origin + place.base, "api_key": "test", **place.settings}
    return {"model_name": alias(protocol, model), "litellm_params": to}


def route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(alias(provider, model))


TARGET = Target(
    name=PROGRAM,
    title=TABLE.title,
    version=version,
    command=command,
    route=route,
    environment=TABLE.environment,
    ready="/health/liveliness",
    patience=180.0,
)
