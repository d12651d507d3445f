"""The gateways that the suite can start: Toolwire, LiteLLM, llm-rosetta and Portkey. Their settings are in `*.toml`."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from toolwire.conformance.targets import NotInstalled, ProgramFolders, Route, Target, model_alias, read_table

TOOLWIRE_PROGRAM = "toolwire"
TOOLWIRE_CONFIG_HEAD = (
    '[server]\nretries = 0\ncooldown_after = 1000000\nlog_format = "none"\n\n[store]\nurl = "sqlite://{store}"\n'
)
TOOLWIRE_TABLE = tomllib.loads((files("toolwire.conformance.targets") / "toolwire.toml").read_text("utf-8"))
TOOLWIRE_QUIRKS: dict[tuple[str, str], str] = {
    (row["protocol"], row["model"]): row["quirk"] for row in TOOLWIRE_TABLE["quirks"]
}
TOOLWIRE_FALLBACKS: dict[tuple[str, str], str] = {
    (row["protocol"], row["model"]): row["fallback"] for row in TOOLWIRE_TABLE["fallbacks"]
}


def read_toolwire_version(sources: ProgramFolders) -> str:
    return sources.read_output(TOOLWIRE_PROGRAM, "--version").rpartition(" ")[2]


def make_toolwire_command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    file = folder / "toolwire.toml"
    providers = {_provider_name(*pair): pair for pair in models}
    lines = [_write_provider(name, *pair, origin) for name, pair in providers.items()]
    rules = [_write_model_rule(*pair) for pair in models if pair in TOOLWIRE_FALLBACKS]
    file.write_text("\n".join([TOOLWIRE_CONFIG_HEAD.format(store=folder / "store.db"), *lines, *rules]))
    return [TOOLWIRE_PROGRAM, "serve", "--config", str(file), "--port", str(port)]


def _write_provider(name: str, protocol: str, model: str, origin: str) -> str:
    quirk = TOOLWIRE_QUIRKS.get((protocol, model))
    quirks = f'quirks = ["{quirk}"]\n' if quirk else ""
    return f'[providers.{name}]\nprotocols = ["{protocol}"]\nbase_url = "{origin}"\n{quirks}'


def _write_model_rule(protocol: str, model: str) -> str:
    name = _provider_name(protocol, model)
    fallback = f"{name}/{TOOLWIRE_FALLBACKS[protocol, model]}"
    return f'[models."{model}"]\nprovider = "{name}"\nmodel = "{model}"\nfallbacks = ["{fallback}"]\n'


def _provider_name(protocol: str, model: str) -> str:
    return f"{TOOLWIRE_QUIRKS.get((protocol, model), 'scripted')}-{protocol}"


def find_toolwire_route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(model if (provider, model) in TOOLWIRE_FALLBACKS else f"{_provider_name(provider, model)}/{model}")


TOOLWIRE = Target(
    name="toolwire",
    title="Toolwire",
    install_hint="pip install 'toolwire[gateway]'",
    read_version=read_toolwire_version,
    make_command=make_toolwire_command,
    find_route=find_toolwire_route,
    ready_path="/readyz",
    configured_cases=tuple(TOOLWIRE_TABLE["configured_cases"]),
)


def find_alias_route(_client: str, provider: str, model: str, _origin: str) -> Route | str:
    return Route(model_alias(provider, model))


# --- LiteLLM: one deployment for each model and protocol ------------------------------------------------------------


LITELLM_PROGRAM = "litellm"
LITELLM_TABLE = read_table("litellm")


def read_litellm_version(sources: ProgramFolders) -> str:
    """Read from its package, because the program takes long to start."""
    python = Path(sources.find_program(LITELLM_PROGRAM)).resolve().with_name("python")
    return sources.read_output(str(python), "-c", "from importlib.metadata import version; print(version('litellm'))")


def make_litellm_command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    deployments = [_litellm_deployment(protocol, model, origin) for protocol, model in models]
    file = folder / "litellm.yaml"
    file.write_text(json.dumps({"model_list": deployments, **LITELLM_TABLE.settings}, indent=1))  # JSON is YAML
    return [LITELLM_PROGRAM, "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]


def _litellm_deployment(protocol: str, model: str, origin: str) -> dict[str, Any]:
    place = LITELLM_TABLE.find_placement(protocol, model)
    to = {"model": f"{place.kind}/{model}", "api_base": origin + place.base, "api_key": "test", **place.settings}
    return {"model_name": model_alias(protocol, model), "litellm_params": to}


LITELLM = Target(
    name=LITELLM_PROGRAM,
    title=LITELLM_TABLE.title,
    read_version=read_litellm_version,
    make_command=make_litellm_command,
    find_route=find_alias_route,
    environment=LITELLM_TABLE.environment,
    ready_path="/health/liveliness",
    start_timeout=180.0,
)


# --- llm-rosetta ----------------------------------------------------------------------------------------------------


ROSETTA_PROGRAM = "llm-rosetta-gateway"
ROSETTA_TABLE = read_table("rosetta")


def read_rosetta_version(sources: ProgramFolders) -> str:
    return sources.read_output(ROSETTA_PROGRAM, "--version").rpartition(" ")[2]


def make_rosetta_command(port: int, origin: str, folder: Path, models: Sequence[tuple[str, str]]) -> Sequence[str]:
    providers = {
        place.kind: {"type": place.kind, "base_url": origin + place.base, "api_key": "test"}
        for place in ROSETTA_TABLE.places
    }
    settings = {
        **ROSETTA_TABLE.settings,
        "providers": providers,
        "models": dict(_rosetta_model(*pair) for pair in models),
    }
    file = folder / "config.jsonc"
    file.write_text(json.dumps(settings, indent=1))
    return [ROSETTA_PROGRAM, "--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--no-banner"]


def _rosetta_model(protocol: str, model: str) -> tuple[str, dict[str, Any]]:
    place = ROSETTA_TABLE.find_placement(protocol, model)
    return model_alias(protocol, model), {"provider": place.kind, "upstream_model": model, **place.settings}


ROSETTA = Target(
    name="llm-rosetta",
    title=ROSETTA_TABLE.title,
    read_version=read_rosetta_version,
    make_command=make_rosetta_command,
    find_route=find_alias_route,
    environment=ROSETTA_TABLE.environment,
    ready_path="/health",
)


# --- Portkey: no configuration, the headers of each request name the provider ---------------------------------------


PORTKEY_PROGRAM = "gateway"
PORTKEY_PACKAGE = "@portkey-ai/gateway"
PORTKEY_TABLE = read_table("portkey")


def read_portkey_version(sources: ProgramFolders) -> str:
    """Read from its package, which also tells it apart from other programs called `gateway`."""
    for folder in Path(sources.find_program(PORTKEY_PROGRAM)).resolve().parents:
        if (file := folder / "package.json").is_file():
            package = json.loads(file.read_bytes())
            if package.get("name") == PORTKEY_PACKAGE:
                return str(package["version"])
    raise NotInstalled(PORTKEY_PACKAGE)


def make_portkey_command(port: int, _origin: str, _folder: Path, _models: Sequence[tuple[str, str]]) -> Sequence[str]:
    return [PORTKEY_PROGRAM, f"--port={port}", "--headless"]


def find_portkey_route(client: str, provider: str, model: str, origin: str) -> Route | str:
    if obstacle := PORTKEY_TABLE.find_obstacle(client, provider):
        return obstacle
    place = PORTKEY_TABLE.find_placement(provider, model, client)
    config = {"provider": place.kind, "custom_host": origin + place.base, "api_key": "test", **place.settings}
    return Route(model, {"x-portkey-config": json.dumps(config)})


PORTKEY = Target(
    name="portkey",
    title=PORTKEY_TABLE.title,
    read_version=read_portkey_version,
    make_command=make_portkey_command,
    find_route=find_portkey_route,
    environment=PORTKEY_TABLE.environment,
)


TARGETS: dict[str, Target] = {target.name: target for target in (TOOLWIRE, LITELLM, ROSETTA, PORTKEY)}
