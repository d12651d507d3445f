"""Which coding agent a user agent names (`agents.toml`)."""

from __future__ import annotations

import tomllib
from functools import cache, lru_cache
from importlib.resources import files

from toolwire.policy.rules import matches_globs


@cache
def load_agents() -> dict[str, tuple[str, ...]]:
    """The known agents, with patterns for the first product in their user agents."""
    text = files("toolwire.gateway.telemetry").joinpath("agents.toml").read_text("utf-8")
    return {name: tuple(globs) for name, globs in tomllib.loads(text).items()}


@lru_cache(maxsize=1024)
def recognise_agent(user_agent: str) -> tuple[str, str]:
    """The agent's name, "" for an unknown one; and the first product of the user agent, without its version."""
    product = user_agent.strip().partition(" ")[0].partition("/")[0].lower()
    name = next((name for name, globs in load_agents().items() if matches_globs(product, globs)), "") if product else ""
    return name, product
