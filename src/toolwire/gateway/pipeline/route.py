"""From the name of a model to the providers that are asked for it, and the room in which each is spoken to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Codec, ModelInfo, Quirk
from toolwire.core.ir import Failure, Request
from toolwire.core.json_values import Object
from toolwire.core.losses import Ledger
from toolwire.gateway.config.config import ClientKey, Config, ModelRule, Provider
from toolwire.gateway.config.problems import nearest_name
from toolwire.protocols import find_codec

MAX_CACHED_ROUTES = 2048
"""Routes that are kept. Names come from clients, so there is no end of them."""
MAX_SUGGESTIONS = 20


class Target(Struct, frozen=True, cache_hash=True):
    """One provider to ask, and for what."""

    provider: Provider
    model: str
    protocol: str = ""
    """The only protocol to ask in, where a rule says so."""
    max_output_tokens: int | None = None


class Router:
    """Finds targets. It belongs to one configuration; a new one gets a new router."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._exact_rules = {rule.name: rule for rule in config.models if not _is_pattern(rule.name)}
        patterns = (rule for rule in config.models if _is_pattern(rule.name))
        self._pattern_rules = sorted(patterns, key=lambda rule: len(rule.name), reverse=True)
        serving = ((pattern, provider) for provider in config.providers.values() for pattern in provider.models)
        self._served_patterns = sorted(serving, key=lambda row: (_is_pattern(row[0]), -len(row[0])))
        self._route_cache: dict[tuple[str, str], tuple[Target, ...] | Failure] = {}

    def route(self, model: str, key: ClientKey | None) -> tuple[Target, ...] | Failure:
        """The first target and its fallbacks, in order."""
        asked = (model, key.name if key is not None else "")
        found = self._route_cache.get(asked)
        if found is None:
            found = self._find_route(model, key)
            if len(self._route_cache) >= MAX_CACHED_ROUTES:
                self._route_cache.clear()
            self._route_cache[asked] = found
        return found

    def list_models(self, key: ClientKey | None) -> tuple[ModelInfo, ...]:
        """The models that can be listed by name, as far as this key may use them."""
        return tuple(ModelInfo(name, owner) for name, owner in self._list_names() if _is_allowed(key, name))

    def find_speaker(self, protocol: str) -> Provider | None:
        """A provider for paths that only pass through: the first that speaks this protocol."""
        for provider in self.config.providers.values():
            if protocol in provider.protocols and not provider.embedded and not provider.is_key_missing:
                return provider
        return None

    # --- one name ---

    def _find_route(self, model: str, key: ClientKey | None) -> tuple[Target, ...] | Failure:
        name = model.removeprefix("models/")
        if not _is_allowed(key, name):
            return Failure("permission", self._forbidden_model_message(name, key), 0, "", "model")
        targets = tuple(self._expand_targets(name, frozenset()))
        if not targets:
            return Failure("not_found", self._unknown_model_message(name, key), 0, "model_not_found", "model")
        return tuple({(target.provider.name, target.model, target.protocol): target for target in targets}.values())

    def _expand_targets(self, name: str, seen: frozenset[str]) -> Iterator[Target]:
        """What a name stands for, then what its fallbacks stand for; a name within itself is passed over."""
        found = self.resolve_name(name, is_fallback=bool(seen))
        if isinstance(found, Target):
            yield found
        elif found is not None and found.name not in seen:
            provider = self.config.providers[found.provider]
            yield Target(provider, found.model or name, found.protocol, found.max_output_tokens)
            for fallback in found.fallbacks:
                yield from self._expand_targets(fallback, seen | {found.name})

    def resolve_name(self, name: str, is_fallback: bool) -> ModelRule | Target | None:
        """What one name leads to. A client's `provider/model` may be caught by a pattern; a fallback's is meant so."""
        if is_fallback:
            return (
                self._exact_rules.get(name)
                or self._split_provider_model(name)
                or self._match_pattern(name)
                or self._match_served(name)
            )
        return (
            self._exact_rules.get(name)
            or self._match_pattern(name)
            or self._split_provider_model(name)
            or self._match_served(name)
        )

    def _match_pattern(self, name: str) -> ModelRule | None:
        return next((rule for rule in self._pattern_rules if _matches_pattern(name, rule.name)), None)

    def _split_provider_model(self, name: str) -> Target | None:
        first, slash, rest = name.partition("/")
        provider = self.config.providers.get(first)
        return Target(provider, rest) if provider is not None and slash and rest else None

    def _match_served(self, name: str) -> Target | None:
        """A name that a provider is known to serve."""
        return next(
            (Target(provider, name) for pattern, provider in self._served_patterns if _matches_pattern(name, pattern)),
            None,
        )

    # --- what there is ---

    def _list_names(self) -> Iterator[tuple[str, str]]:
        """Every name without a pattern in it, and who owns it; each once."""
        seen: set[str] = set()
        rules = ((rule.name, rule.provider) for rule in self.config.models)
        served = ((pattern, provider.name) for pattern, provider in self._served_patterns)
        for name, owner in (*rules, *served):
            if not _is_pattern(name) and name not in seen:
                seen.add(name)
                yield name, owner

    def _unknown_model_message(self, name: str, key: ClientKey | None) -> str:
        said = f"there is no model `{name}` here" if name else "the request names no model"
        return f"{said}. {self._suggest_models(name, key)}"

    def _forbidden_model_message(self, name: str, key: ClientKey | None) -> str:
        owner = key.name if key is not None else ""
        return f"the key `{owner}` may not use the model `{name}`. {self._suggest_models(name, key)}"

    def _suggest_models(self, name: str, key: ClientKey | None) -> str:
        """What could be asked for instead, the nearest first."""
        rules = [rule.name for rule in self.config.models]
        providers = self.config.providers.values()
        ways = [pattern for pattern, _ in self._served_patterns] + [f"{p.name}/*" for p in providers if not p.embedded]
        every = list(dict.fromkeys([*rules, *ways]))
        usable = [way for way in every if _is_allowed(key, way)]
        if key is not None:
            usable = list(dict.fromkeys([*usable, *(pattern for pattern in key.models if pattern != "*")]))
        near = nearest_name(name, usable)
        shown = ([near] if near else []) + [way for way in usable if way != near]
        more = f" and {len(shown) - MAX_SUGGESTIONS} more" if len(shown) > MAX_SUGGESTIONS else ""
        return f"There is: {', '.join(shown[:MAX_SUGGESTIONS])}{more}" if shown else "No model is configured"


def _is_pattern(name: str) -> bool:
    return "*" in name or "?" in name


def _matches_pattern(name: str, pattern: str) -> bool:
    # Brackets are part of names here ("…[1m]"), not sets of characters.
    return name == pattern or fnmatchcase(name, pattern.replace("[", "[[]"))


def _is_allowed(key: ClientKey | None, name: str) -> bool:
    return key is None or any(_matches_pattern(name, pattern) for pattern in key.models)


# --- rooms --------------------------------------------------------------------------------------------------------


def choose_codec(target: Target, client: Codec, has_tools: Callable[[], bool]) -> Codec:
    """The room to ask in, for a request that has tools or has none."""
    with_tools, without = choose_codecs(target, client)
    return with_tools if with_tools is without or has_tools() else without


def choose_codecs(target: Target, client: Codec) -> tuple[Codec, Codec]:
    """The rooms to ask in with tools and without: the pinned one; else the client's own where the provider speaks it
    and takes the model; else the provider's first that does. With the provider's quirks, which make it another room
    than the client's."""
    protocols, model = target.provider.protocols, target.model
    if target.protocol:
        pinned = codec_with_quirks(target.protocol, target.provider.quirks)
        return pinned, pinned
    spoken = [*([client] if client.name in protocols else []), *map(find_codec, protocols)]
    # What is taken with tools is taken without.
    takers = [place for place in spoken if place.supports_model(model, True)]
    others = [place for place in spoken if place in takers or place.supports_model(model, False)]
    with_tools, without = ((found or [find_codec(protocols[0])])[0].name for found in (takers, others))
    return codec_with_quirks(with_tools, target.provider.quirks), codec_with_quirks(without, target.provider.quirks)


@cache
def codec_with_quirks(protocol: str, quirks: tuple[str, ...]) -> Codec:
    """A room as servers with these quirks want it; the room itself when it has none of them."""
    plain = find_codec(protocol)
    known = [plain.quirks[name] for name in quirks if name in plain.quirks]
    if not known:
        return plain
    rules: dict[str, object] = {}
    for quirk in known:
        rules.update(quirk.constraints)
    return replace(
        plain, constraints=replace(plain.constraints, **rules), write_request=_write_with_quirks(plain, known)
    )


def _write_with_quirks(codec: Codec, quirks: list[Quirk]) -> Callable[[Request, Ledger], Object]:
    """The writer of requests, with what the quirks do to the body after it."""
    bodies = [quirk.rewrite_body for quirk in quirks if quirk.rewrite_body is not None]
    if not bodies:
        return codec.write_request

    def write_request(request: Request, ledger: Ledger) -> Object:
        body = codec.write_request(request, ledger)
        for bend in bodies:
            body = bend(body, request.model, ledger)
        return body

    return write_request
