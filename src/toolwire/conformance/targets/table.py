"""What is known of a gateway as a table: what was decided, and why, stands in the files beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import Struct


class Place(Struct, frozen=True, forbid_unknown_fields=True):
    """How the gateway is told of a provider: what it calls that kind of provider, and where it is."""

    protocol: str
    kind: str
    base: str = ""
    """Behind the provider's origin."""
    models: tuple[str, ...] = ("*",)
    """Patterns of names."""
    clients: tuple[str, ...] = ("*",)
    """Patterns of protocols, where the gateway is told by each request."""
    settings: Mapping[str, Any] = {}


class Impossible(Struct, frozen=True, forbid_unknown_fields=True):
    why: str
    clients: tuple[str, ...] = ("*",)
    providers: tuple[str, ...] = ("*",)


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    title: str
    places: tuple[Place, ...]
    """The first that fits counts."""
    environment: Mapping[str, str] = {}
    settings: Mapping[str, Any] = {}
    """Goes into its configuration as it stands."""
    impossible: tuple[Impossible, ...] = ()

    def place(self, protocol: str, model: str, client: str = "") -> Place:
        return next(
            place
            for place in self.places
            if place.protocol == protocol and _fits(model, place.models) and _fits(client, place.clients)
        )

    def obstacle(self, client: str, provider: str) -> str:
        """Why a pair cannot be had, or nothing."""
        found = (one.why for one in self.impossible if _fits(client, one.clients) and _fits(provider, one.providers))
        return next(found, "")


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def read_table(name: str) -> Table:
    return msgspec.toml.decode(files(__package__).joinpath(f"{name}.toml").read_bytes(), type=Table)


def alias(protocol: str, model: str) -> str:
    """A name of its own for each model behind each protocol; the model comes first, as some look at how names begin."""
    return f"{model}--{protocol}"
