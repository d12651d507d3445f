"""What is measured, and how each is started: as its users start it, pointed at the canned provider."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from bench.gateway import canned

BIN = Path(sys.executable).parent
TARGETS = ("openai-chat", "anthropic", "gemini")
"""The protocols that the provider is spoken to in; each is reached by its own model name."""


class System(Struct, frozen=True):
    name: str
    command: Callable[[int, int, Path], Sequence[str]]
    """From its port, the provider's port and an empty folder."""
    translates: bool = True
    rounds: int = 99
    """The most rounds it takes part in: figures that are far from a target need not be fine."""
    patience: float = 60.0


def floor(port: int, provider: int, folder: Path) -> Sequence[str]:
    return [sys.executable, "-P", str(Path(__file__).with_name("floor.py")), str(port), str(provider)]


def toolwire(port: int, provider: int, folder: Path) -> Sequence[str]:
    lines = []
    for number, name in enumerate(TARGETS):
        lines += [
            f"[providers.canned{number}]",
            f'protocols = ["{name}"]',
            f'base_url = "http://127.0.0.1:{provider}"',
            'api_key_env = "BENCH_KEY"',
            f'[models."{canned.MODELS[name]}"]',
            f'provider = "canned{number}"',
        ]
    file = folder / "toolwire.toml"
    file.write_text("\n".join(lines) + "\n")
    return [str(BIN / "toolwire"), "serve", "--config", str(file), "--port", str(port)]


def without_console(port: int, provider: int, folder: Path) -> Sequence[str]:
    """Toolwire that keeps nothing for its console, which is on here by default."""
    command = toolwire(port, provider, folder)
    with (folder / "toolwire.toml").open("a") as file:
        file.write("[console]\nenabled = false\n")
    return command


def repairing(port: int, provider: int, folder: Path) -> Sequence[str]:
    """Toolwire that searches every answer for calls in text, and repairs names and arguments."""
    command = toolwire(port, provider, folder)
    file = folder / "toolwire.toml"
    file.write_text(file.read_text().replace("[models.", 'tool_format = "auto"\n[models.'))
    return command


def without_costs(port: int, provider: int, folder: Path) -> Sequence[str]:
    """Toolwire that looks up no prices, and writes no ledger; it has no limits either."""
    command = toolwire(port, provider, folder)
    with (folder / "toolwire.toml").open("a") as file:
        file.write("[costs]\nenabled = false\n")
    return command


def priced(port: int, provider: int, folder: Path) -> Sequence[str]:
    """Toolwire that knows the prices of all models, and writes what every call costs into its ledger."""
    command = toolwire(port, provider, folder)
    prices = "input = 1.25\noutput = 10.00\ncache_read = 0.125\n"
    with (folder / "toolwire.toml").open("a") as file:
        for number in range(len(TARGETS)):
            file.write(f'[models."canned{number}/*".facts.prices]\n{prices}')
    return command


def limited(port: int, provider: int, folder: Path) -> Sequence[str]:
    """The same, and it counts requests and dollars for a limit that nobody reaches."""
    command = priced(port, provider, folder)
    with (folder / "toolwire.toml").open("a") as file:
        file.write("[[limits]]\nrequests_per_minute = 1_000_000_000\ndollars_per_day = 1_000_000\n")
    return command


def litellm(port: int, provider: int, folder: Path) -> Sequence[str]:
    bases = {"openai-chat": ("openai", "/v1"), "anthropic": ("anthropic", ""), "gemini": ("gemini", "/v1beta")}
    models = []
    for name in TARGETS:
        kind, base = bases[name]
        model = canned.MODELS[name]
        to = {"model": f"{kind}/{model}", "api_base": f"http://127.0.0.1:{provider}{base}", "api_key": "bench"}
        models.append({"model_name": model, "litellm_params": to})
    # Else it asks OpenAI models on another endpoint than the pair names. JSON is YAML.
    settings = {"telemetry": False, "use_chat_completions_url_for_anthropic_messages": True}
    file = folder / "litellm.yaml"
    file.write_text(json.dumps({"model_list": models, "litellm_settings": settings}))
    return [str(BIN / "litellm"), "--config", str(file), "--host", "127.0.0.1", "--port", str(port)]


def rosetta(port: int, provider: int, folder: Path) -> Sequence[str]:
    kinds = {"openai-chat": ("openai_chat", "/v1"), "anthropic": ("anthropic", ""), "gemini": ("google", "")}
    providers, models = {}, {}
    for name in TARGETS:
        kind, base = kinds[name]
        providers[name] = {"type": kind, "base_url": f"http://127.0.0.1:{provider}{base}", "api_key": "bench"}
        models[canned.MODELS[name]] = {"provider": name, "capabilities": ["text", "tools"]}
    server = {"host": "127.0.0.1", "port": port, "open_on_no_keys": True}
    file = folder / "config.jsonc"
    file.write_text(json.dumps({"providers": providers, "models": models, "server": server}))
    return [str(BIN / "llm-rosetta-gateway"), "--config", str(file), "--port", str(port), "--no-banner"]


SYSTEMS = {
    system.name: system
    for system in (
        System("floor", floor, translates=False),
        System("toolwire", toolwire),
        System("no-console", without_console),
        System("repairing", repairing),
        System("no-costs", without_costs),
        System("priced", priced),
        System("limited", limited),
        System("litellm", litellm, rounds=3, patience=180.0),
        System("rosetta", rosetta),
    )
}


def environment(folder: Path) -> dict[str, str]:
    """No proxies, no keys, no home and no telemetry: what a gateway finds here is the same everywhere."""
    kept = ("PATH", "LANG", "LC_ALL", "TZ")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": str(folder),
        "BENCH_KEY": "bench",
        "NO_PROXY": "127.0.0.1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # without keys, as the others are measured
    }
