"""The catalogue of models: data of the package genai-prices (MIT), without the package, and what it lacks. See
docs/decisions/0018.

`.ci/catalogue.py` writes `catalogue.json`; `known_models.toml` is written by hand. Both are read when a fact is asked
for, the models of each provider of `catalogue.json` apart.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files

import msgspec
from msgspec import Raw, Struct

from toolwire.core.codec import NO_FACTS, ModelFacts
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.settings.prices import Prices
from toolwire.gateway.settings.providers import known_servers

_COMPACT_DATE = re.compile(r"-(20\d\d)(\d\d)(\d\d)$")
"""The date at the end of a name, which the catalogue has with hyphens for some vendors and without for others."""
MAX_REMEMBERED_NAMES = 1024
"""Clients choose the names of models that are asked for."""


class Clause(Struct, frozen=True, forbid_unknown_fields=True):
    """A condition on the name of a model, in lower case. One field is set."""

    equals: str = ""
    starts: str = ""
    ends: str = ""
    contains: str = ""
    regex: str = ""
    any: tuple[Clause, ...] = ()
    all: tuple[Clause, ...] = ()

    def matches(self, name: str) -> bool:
        return (
            (self.equals != "" and name == self.equals.lower())
            or (self.starts != "" and name.startswith(self.starts.lower()))
            or (self.ends != "" and name.endswith(self.ends.lower()))
            or (self.contains != "" and self.contains.lower() in name)
            or (self.regex != "" and re.search(self.regex, name) is not None)
            or any(clause.matches(name) for clause in self.any)
            or (self.all != () and all(clause.matches(name) for clause in self.all))
        )


class DatedPrices(Prices, frozen=True, kw_only=True, cache_hash=True):
    """Prices, and when they apply. Times are in UTC."""

    since: date | None = None
    hours: tuple[time, time] | None = None
    """They apply at this time of the day (DeepSeek), until the second time, which can be on the next day."""
    service_tier: str = ""
    """They are for this `service_tier` of OpenAI and Google, and leave out what costs the same in all of them."""

    def apply_at(self, moment: datetime) -> bool:
        if self.since is not None and moment.date() < self.since:
            return False
        if self.hours is None:
            return True
        (start, end), now = self.hours, moment.time()
        return start <= now < end if start <= end else now >= start or now < end


class CatalogueModel(Struct, frozen=True):
    id: str
    match: Clause
    context_window: int | None = None
    prices: tuple[DatedPrices, ...] = ()
    """Later ones win over earlier ones, where both apply. If none applies, the first one is used."""


class KnownModel(ModelFacts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of `known_models.toml`."""

    match: str
    """A name or a pattern, in lower case."""
    last: bool = False
    """Are later lines not about models with this name?"""


class KnownModels(Struct, frozen=True, forbid_unknown_fields=True):
    models: tuple[KnownModel, ...]


class CatalogueProvider(Struct, frozen=True):
    url: str
    """A regular expression for its base URL."""
    fallbacks: tuple[str, ...]
    """Providers whose models it serves, too."""
    models: Raw


class Catalogue(Struct, frozen=True, dict=True):
    source: str
    """The name and the version of the data."""
    providers: Mapping[str, CatalogueProvider]

    def find_model(self, provider: Provider, model: str) -> CatalogueModel | None:
        name = _find_provider(provider.kind, tuple(provider.base_urls.values()))
        return _find_model(name, model) if name else None

    def has_provider(self, provider: Provider) -> bool:
        return _find_provider(provider.kind, tuple(provider.base_urls.values())) != ""

    def find_known_facts(self, provider: Provider, model: str) -> ModelFacts:
        name = _find_provider(provider.kind, tuple(provider.base_urls.values()))
        return _find_known_facts(name, model) if name else NO_FACTS


@cache
def load_catalogue() -> Catalogue:
    data = files("toolwire.gateway.models").joinpath("catalogue.json").read_bytes()
    return msgspec.json.decode(data, type=Catalogue)


@cache
def _load_models(provider: str) -> tuple[CatalogueModel, ...]:
    row = load_catalogue().providers.get(provider)
    return msgspec.json.decode(row.models, type=tuple[CatalogueModel, ...]) if row is not None else ()


@lru_cache(MAX_REMEMBERED_NAMES)
def _find_provider(kind: str, urls: tuple[str, ...]) -> str:
    """Its name in the catalogue: by its address, or else as a well-known server that has another address, such as
    that of a proxy. Local servers are not in it: how they were started decides what their models can do."""
    providers = load_catalogue().providers
    for name, row in providers.items():
        if any(re.match(row.url, url) for url in urls):
            return name
    known = known_servers().get(kind)
    if known is None or known.local:
        return ""
    name = known.catalogue or kind
    return name if name in providers else ""


@lru_cache(MAX_REMEMBERED_NAMES)
def _find_model(provider: str, model: str) -> CatalogueModel | None:
    ids = (provider, *load_catalogue().providers[provider].fallbacks)
    lower = model.lower()
    names = dict.fromkeys((lower, _COMPACT_DATE.sub(r"-\1-\2-\3", lower)))
    return next((found for name in names if (found := _find_first(ids, name)) is not None), None)


@cache
def load_known_models() -> Mapping[str, KnownModels]:
    text = files("toolwire.gateway.models").joinpath("known_models.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, KnownModels])


@lru_cache(MAX_REMEMBERED_NAMES)
def _find_known_facts(provider: str, model: str) -> ModelFacts:
    lower, tables = model.lower(), load_known_models()
    ids = (provider, *load_catalogue().providers[provider].fallbacks)
    rows: list[KnownModel] = []
    for row in (row for id in ids if id in tables for row in tables[id].models):
        if fnmatchcase(lower, row.match):
            rows.append(row)
            if row.last:
                break
    return merge_facts(rows)


def merge_facts(tables: Sequence[ModelFacts]) -> ModelFacts:
    """Each fact as the first table has it that knows it."""
    facts = {
        name: next((value for one in tables if (value := getattr(one, name)) is not None), None)
        for name in ModelFacts.__struct_fields__
    }
    return ModelFacts(**facts)


def _find_first(providers: Iterable[str], name: str) -> CatalogueModel | None:
    models = (model for provider in providers for model in _load_models(provider))
    return next((model for model in models if model.match.matches(name)), None)
