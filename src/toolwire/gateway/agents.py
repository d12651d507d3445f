"""Which agent it is, from its user agent. The table is `agents.toml`."""

from __future__ import annotations

import tomllib
from functools import cache, lru_cache
from importlib.resources import files

from toolwire.policy.match import fits


@cache
def agents() -> dict[str, tuple[str, ...]]:
    """The agents that are known, and how the first product of their user agents is spelled."""
    text = files("toolwire.gateway").joinpath("agents.toml").read_text("utf-8")
    return {name: tuple(globs) for name, globs in tomllib.loads(text).items()}


@lru_cache(maxsize=1024)
def recognised(user_agent: str) -> tuple[str, str]:
    """The agent's name, "" for one that nobody knows; and the first product as it is sent, without its version."""
    product = user_agent.strip().partition(" ")[0].partition("/")[0].lower()
    name = next((name for name, globs in agents().items() if fits(product, globs)), "") if product else ""
    return name, product
