"""Gateways that the suite starts by itself, by name. Words of protocols stand in the tables (`*.toml`) beside them."""

from __future__ import annotations

from toolwire.conformance.targets import gateways
from toolwire.conformance.targets.target import NotInstalled, ProgramFolders, Route, Target

__all__ = ["TARGETS", "NotInstalled", "ProgramFolders", "Route", "Target"]

TARGETS: dict[str, Target] = {
    target.name: target for target in (gateways.TOOLWIRE, gateways.LITELLM, gateways.ROSETTA, gateways.PORTKEY)
}
