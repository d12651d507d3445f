"""From the name of a model to the providers that are asked for it, and the room in which each is spoken to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from toolwire.gateway.settings.config import ClientKey, Config, ModelRule, Provider
from toolwire.gateway.settings.problems import nearest
from toolwire.ir import Request
from toolwire.loss import Ledger
from toolwire.protocols import room
from toolwire.room import Card, Quirk, Room
from toolwire.wire import Object

REMEMBERED = 2048
"""Routes that are kept. Names come from clients, so there is no end of them."""
LISTED = 20


class Target(Struct, frozen=True, cache_hash=True):
    """One provider to ask, and for what."""

    provider: Provider
    model: str
    protocol: str = ""
    """The only protocol to ask in, where a rule says so."""
    max_output_tokens: int | None = None


class Unroutable(Struct, frozen=True):
    """No provider for this name, and why; the message may be shown to the client."""

    kind: Literal["not_found", "permission"]
    message: str


class Router:
    """Finds targets. It belongs to one configuration; a new one gets a new router."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._exact = {rule.name: rule for rule in config.models if not _is_pattern(rule.name)}
        patterns = (rule for rule in config.models if _is_pattern(rule.name))
        self._patterns = sorted(patterns, key=lambda rule: len(rule.name), reverse=True)
        serving = ((pattern, provider) for provider in config.providers.values() for pattern in provider.models)
        self._serving = sorted(serving, key=lambda row: (_is_pattern(row[0]), -len(row[0])))
        self._found: dict[tuple[str, str], tuple[Target, ...] | Unroutable] = {}

    def route(self, model: str, key: ClientKey | None) -> tuple[Target, ...] | Unroutable:
        """The first target and its fallbacks, in order."""
        asked = (model, key.name if key is not None else "")
        found = self._found.get(asked)
        if found is None:
            found = self._route(model, key)
            if len(self._found) >= REMEMBERED:
                self._found.clear()
            self._found[asked] = found
        return found

    def cards(self, key: ClientKey | None) -> tuple[Card, ...]:
        """The models that can be listed by name, as far as this key may use them."""
        return tuple(Card(name, owner) for name, owner in self._names() if _may(key, name))

    def speaker(self, protocol: str) -> Provider | None:
        """A provider for paths that only pass through: the first that speaks this protocol."""
        for provider in self.config.providers.values():
            if protocol in provider.protocols and not provider.embedded and not provider.key_missing:
                return provider
        return None

    # --- one name ---

    def _route(self, model: str, key: ClientKey | None) -> tuple[Target, ...] | Unroutable:
        name = model.removeprefix("models/")
        if not _may(key, name):
            return Unroutable("permission", self._forbidden(name, key))
        targets = tuple(self._targets(name, frozenset()))
        if not targets:
            return Unroutable("not_found", self._unknown(name, key))
        return tuple({(target.provider.name, target.model, target.protocol): target for target in targets}.values())

    def _targets(self, name: str, seen: frozenset[str]) -> Iterator[Target]:
        """What a name stands for, then what its fallbacks stand for; a name within itself is passed over."""
        found = self.step(name, fallback=bool(seen))
        if isinstance(found, Target):
            yield found
        elif found is not None and found.name not in seen:
            provider = self.config.providers[found.provider]
            yield Target(provider, found.model or name, found.protocol, found.max_output_tokens)
            for fallback in found.fallbacks:
                yield from self._targets(fallback, seen | {found.name})

    def step(self, name: str, fallback: bool) -> ModelRule | Target | None:
        """What one name leads to. A client's `provider/model` may be caught by a pattern; a fallback's is meant so."""
        if fallback:
            return self._exact.get(name) or self._direct(name) or self._pattern(name) or self._served(name)
        return self._exact.get(name) or self._pattern(name) or self._direct(name) or self._served(name)

    def _pattern(self, name: str) -> ModelRule | None:
        return next((rule for rule in self._patterns if _fits(name, rule.name)), None)

    def _direct(self, name: str) -> Target | None:
        first, slash, rest = name.partition("/")
        provider = self.config.providers.get(first)
        return Target(provider, rest) if provider is not None and slash and rest else None

    def _served(self, name: str) -> Target | None:
        """A name that a provider is known to serve."""
        return next((Target(provider, name) for pattern, provider in self._serving if _fits(name, pattern)), None)

    # --- what there is ---

    def _names(self) -> Iterator[tuple[str, str]]:
        """Every name without a pattern in it, and who owns it; each once."""
        seen: set[str] = set()
        rules = ((rule.name, rule.provider) for rule in self.config.models)
        served = ((pattern, provider.name) for pattern, provider in self._serving)
        for name, owner in (*rules, *served):
            if not _is_pattern(name) and name not in seen:
                seen.add(name)
                yield name, owner

    def _unknown(self, name: str, key: ClientKey | None) -> str:
        said = f"there is no model `{name}` here" if name else "the request names no model"
        return f"{said}. {self._offer(name, key)}"

    def _forbidden(self, name: str, key: ClientKey | None) -> str:
        owner = key.name if key is not None else ""
        return f"the key `{owner}` may not use the model `{name}`. {self._offer(name, key)}"

    def _offer(self, name: str, key: ClientKey | None) -> str:
        """What could be asked for instead, the nearest first."""
        rules = [rule.name for rule in self.config.models]
        providers = self.config.providers.values()
        ways = [pattern for pattern, _ in self._serving] + [f"{p.name}/*" for p in providers if not p.embedded]
        every = list(dict.fromkeys([*rules, *ways]))
        usable = [way for way in every if _may(key, way)]
        if key is not None:
            usable = list(dict.fromkeys([*usable, *(pattern for pattern in key.models if pattern != "*")]))
        near = nearest(name, usable)
        shown = ([near] if near else []) + [way for way in usable if way != near]
        more = f" and {len(shown) - LISTED} more" if len(shown) > LISTED else ""
        return f"There is: {', '.join(shown[:LISTED])}{more}" if shown else "No model is configured"


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _fits(name: str, pattern: str) -> bool:
    # Brackets are part of names here ("…[1m]"), not sets of characters.
    return name == pattern or fnmatchcase(name, pattern.replace("[", "[[]"))


def _may(key: ClientKey | None, name: str) -> bool:
    return key is None or any(_fits(name, pattern) for pattern in key.models)


# --- rooms --------------------------------------------------------------------------------------------------------


def chosen_room(target: Target, client: Room, tools: Callable[[], bool]) -> Room:
    """The room to ask in, for a request that has tools or has none."""
    with_tools, without = rooms_for(target, client)
    return with_tools if with_tools is without or tools() else without


def rooms_for(target: Target, client: Room) -> tuple[Room, Room]:
    """The rooms to ask in with tools and without: the pinned one; else the client's own where the provider speaks it
    and takes the model; else the provider's first that does. With the provider's quirks, which make it another room
    than the client's."""
    protocols, model = target.provider.protocols, target.model
    if target.protocol:
        pinned = variant(target.protocol, target.provider.quirks)
        return pinned, pinned
    spoken = [*([client] if client.name in protocols else []), *map(room, protocols)]
    # What is taken with tools is taken without.
    takers = [place for place in spoken if place.takes(model, True)]
    others = [place for place in spoken if place in takers or place.takes(model, False)]
    with_tools, without = ((found or [room(protocols[0])])[0].name for found in (takers, others))
    return variant(with_tools, target.provider.quirks), variant(without, target.provider.quirks)


@cache
def variant(protocol: str, quirks: tuple[str, ...]) -> Room:
    """A room as servers with these quirks want it; the room itself when it has none of them."""
    plain = room(protocol)
    known = [plain.quirks[name] for name in quirks if name in plain.quirks]
    if not known:
        return plain
    rules: dict[str, object] = {}
    for quirk in known:
        rules.update(quirk.rules)
    return replace(plain, rules=replace(plain.rules, **rules), write_request=_bent(plain, known))


def _bent(plain: Room, quirks: list[Quirk]) -> Callable[[Request, Ledger], Object]:
    """The writer of requests, with what the quirks do to the body after it."""
    bodies = [quirk.body for quirk in quirks if quirk.body is not None]
    if not bodies:
        return plain.write_request

    def write(request: Request, ledger: Ledger) -> Object:
        body = plain.write_request(request, ledger)
        for bend in bodies:
            body = bend(body, request.model, ledger)
        return body

    return write
