"""What is known about a model (`ModelFacts`), merged from several sources, each fact with its source.

The sources, in this order: `[models.NAME.facts]` in toolwire.toml, the provider's own list of models, the tables of the
provider's protocols, and the catalogue: Toolwire's own file first, then genai-prices. A fact that none of them knows is
unknown, and forbids nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from toolwire.core.codec import NO_FACTS, ModelFacts
from toolwire.gateway.models.catalogue import load_catalogue, merge_facts
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.router import Router, Target
from toolwire.policy.rules import matches_globs
from toolwire.protocols import find_codec

FactValue: TypeAlias = int | bool | tuple[str, ...] | None


class Fact(Struct, frozen=True):
    """One fact, and where it comes from."""

    name: str
    """A field of `ModelFacts`."""
    value: FactValue
    source: str


def find_facts(config: Config, model: str, listed: ModelFacts = NO_FACTS) -> ModelFacts:
    """What is known about a model, by the name that clients use. `listed` is what its provider's list says of it."""
    return FactFinder(Router(config)).find_facts(model, listed)


class FactFinder:
    """Finds the facts about models, under one configuration."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def find_facts(self, model: str, listed: ModelFacts = NO_FACTS) -> ModelFacts:
        return self.find_target_facts(model, self._router.find_target(model), listed)

    def find_target_facts(self, model: str, target: Target | None, listed: ModelFacts) -> ModelFacts:
        facts: dict[str, Any] = {fact.name: fact.value for fact in self._collect_facts(model, target, listed)}
        return ModelFacts(**facts)

    def find_set_facts(self, model: str, target: Target) -> ModelFacts:
        """What the operator has set, and nothing else."""
        return merge_facts([self._router.config.facts[name] for name in self._names_in_file(model, target)])

    def explain_facts(self, model: str, listed: ModelFacts = NO_FACTS) -> tuple[Fact, ...]:
        """All facts with their sources; the value of an unknown one is None."""
        return self._collect_facts(model, self._router.find_target(model), listed)

    def _collect_facts(self, model: str, target: Target | None, listed: ModelFacts) -> tuple[Fact, ...]:
        found: dict[str, Fact] = {}
        for source, facts in self._sources(model, target, listed, found):
            for name in ModelFacts.__struct_fields__:
                value: FactValue = getattr(facts, name)
                if value is not None:
                    found.setdefault(name, Fact(name, value, source))
        unknown = {name: Fact(name, None, "") for name in ModelFacts.__struct_fields__ if name not in found}
        every = {**unknown, **found}
        return tuple(_lower_to_rule(every[name], target) for name in ModelFacts.__struct_fields__)

    def _sources(
        self, model: str, target: Target | None, listed: ModelFacts, found: Mapping[str, Fact]
    ) -> Iterator[tuple[str, ModelFacts]]:
        for name in self._names_in_file(model, target):
            yield f"[models.{_quote_key(name)}.facts]", self._router.config.facts[name]
        if target is None:
            return
        provider = target.provider
        yield f"the list of models of {provider.name}", listed
        for protocol in provider.protocols:
            yield f"Toolwire's table of {protocol} models", find_codec(protocol).http.find_model_facts(target.model)
        if provider.embedded or len(found) == len(ModelFacts.__struct_fields__):
            return
        catalogue = load_catalogue()
        yield "Toolwire's list of models", catalogue.find_known_facts(provider, target.model)
        if "context_window" not in found:  # all that genai-prices has, besides prices
            known = catalogue.find_model(provider, target.model)
            if known is not None:
                yield f"{catalogue.source}, {known.id}", ModelFacts(context_window=known.context_window)

    def _names_in_file(self, model: str, target: Target | None) -> Iterator[str]:
        """The tables of the file about a model: those for the client's name first, exact ones before patterns."""
        tables = self._router.config.facts
        if not tables:
            return
        names = [model, *((f"{target.provider.name}/{target.model}", target.model) if target is not None else ())]
        patterns = sorted(tables, key=len, reverse=True)
        for name in dict.fromkeys(names):
            if name in tables:
                yield name
            yield from (pattern for pattern in patterns if pattern != name and matches_globs(name, (pattern,)))


def _lower_to_rule(fact: Fact, target: Target | None) -> Fact:
    """The operator can allow less than the model can."""
    limit = target.max_output_tokens if target is not None else None
    if fact.name != "max_output_tokens" or limit is None or (isinstance(fact.value, int) and fact.value <= limit):
        return fact
    return Fact(fact.name, limit, "max_output_tokens in [models]")


def _quote_key(name: str) -> str:
    is_bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    return name if is_bare else f'"{name}"'
