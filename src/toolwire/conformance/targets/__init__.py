"""Gateways that the suite starts by itself, by name. Words of protocols stand in the tables (`*.toml`) beside them."""

from __future__ import annotations

from toolwire.conformance.targets import litellm, own, portkey, rosetta
from toolwire.conformance.targets.target import NotInstalled, Route, Sources, Target

__all__ = ["TARGETS", "NotInstalled", "Route", "Sources", "Target"]

TARGETS: dict[str, Target] = {module.TARGET.name: module.TARGET for module in (own, litellm, rosetta, portkey)}
