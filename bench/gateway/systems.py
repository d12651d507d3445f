"""What is measured, and how each is started: as its users start it, pointed at the canned provider."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct

from bench.gateway import canned

BIN = Path(sys.executable).parent
TARGETS = ("openai-chat", "anthropic", "gemini")
"""The protocols that the provider is spoken to in; each is reached by its own model name."""


AWS_KEYS = {"AWS_ACCESS_KEY_ID": "AKIDBENCH", "AWS_SECRET_ACCESS_KEY": "secret-of-the-bench"}


class System(Struct, frozen=True):
    name: str
    command: Callable[[int, int, Path], Sequence[str]]
    """From its port, the provider's port and an empty folder."""
    translates: bool = True
    rounds: int = 99
    """The most rounds it takes part in: figures that are far from a target need not be fine."""
    patience: float = 60.0


def floor_command(port: int, provider: int, folder: Path) -> Sequence[str]:
    return [sys.executable, "-P", str(Path(__file__).with_name("floor.py")), str(port), str(provider)]


def toolwire(
    port: int,
    provider: int,
    folder: Path,
    settings: str = "",
    of_each_provider: str = "",
    credential: str = 'api_key_env = "BENCH_KEY"',
) -> Sequence[str]:
    """Toolwire with its defaults, and with more settings for the file, or for each provider in it."""
    lines = []
    for number, name in enumerate(TARGETS):
        lines += [
            f"[providers.canned{number}]",
            f'protocols = ["{name}"]',
            f'base_url = "http://127.0.0.1:{provider}"',
            credential,
            of_each_provider,
            f'[models."{canned.MODELS[name]}"]',
            f'provider = "canned{number}"',
        ]
    file = folder / "toolwire.toml"
    file.write_text("\n".join([*lines, settings]) + "\n")
    return [str(BIN / "toolwire"), "serve", "--config", str(file), "--port", str(port)]


PRICES = "".join(
    f'[models."canned{number}/*".facts.prices]\ninput = 1.25\noutput = 10.00\ncache_read = 0.125\n'
    for number in range(len(TARGETS))
)
BARE = '[server]\nwatch_cache = false\nlog_format = "none"\n[console]\nenabled = false\n[costs]\nenabled = false\n'
"""Without anything that looks at a request beside its way."""
LIMITS = "[[limits]]\nrequests_per_minute = 1_000_000_000\ndollars_per_day = 1_000_000\n"
"""Limits that nobody reaches."""


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
        System("floor", floor_command, translates=False),
        System("toolwire", toolwire),
        System("no-console", partial(toolwire, settings="[console]\nenabled = false\n")),
        System("bare", partial(toolwire, settings=BARE)),
        System("repairing", partial(toolwire, of_each_provider='tool_format = "auto"')),
        System("no-costs", partial(toolwire, settings="[costs]\nenabled = false\n")),
        System("priced", partial(toolwire, settings=PRICES)),
        System("limited", partial(toolwire, settings=PRICES + LIMITS)),
        System("signed", partial(toolwire, settings=BARE, credential='auth = "aws"\nregion = "us-east-1"'), rounds=3),
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
        **AWS_KEYS,
        "NO_PROXY": "127.0.0.1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # without keys, as the others are measured
    }
