"""The first step of the pipeline: from the name of a model to its providers, and the protocol for each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.codec import Codec, ModelInfo, PassthroughEndpoint, Quirk
from toolwire.core.ir import Failure, Request
from toolwire.core.json_values import Object
from toolwire.core.losses import Ledger
from toolwire.gateway.settings.config import CallSettings, ClientKey, Config, ModelRule, Provider
from toolwire.gateway.settings.problems import nearest_name
from toolwire.gateway.settings.providers import UNSUPPORTED_SERVERS, known_servers
from toolwire.policy.rules import is_glob, matches_globs
from toolwire.protocols import find_codec

MAX_CACHED_ROUTES = 2048
"""Names come from clients, so their number is not limited otherwise."""
MAX_SUGGESTIONS = 20
MAX_MODEL_NAME = 256
MAX_MISSPELLED = 64
"""Characters of a name that is compared with others: clients choose it."""
_DOUBTFUL_NAME = re.compile(
    r"[\x00-\x1f\x7f-\x9f%\\?&|;,\ud800-\udfff\u200b-\u200f\u2028-\u202e\ufeff]|\.\.|//|(?:^|/)\.(?:/|$)|^\s|\s$"
)
"""What a provider, or a proxy before it, could read as another name or another path."""


class Target(Struct, frozen=True, cache_hash=True):
    """One provider to ask, and the name of the model there."""

    provider: Provider
    model: str
    protocol: str = ""
    """The protocol to use, if the configuration pins one."""
    max_output_tokens: int | None = None
    calls: CallSettings = CallSettings()
    """Of the model's rule; what it leaves out is that of the provider."""
    shown_quirks: tuple[str, ...] = ()
    """Quirks that it has shown by refusals, besides those that its provider is known to have."""

    @property
    def quirks(self) -> tuple[str, ...]:
        return (*self.provider.quirks, *self.shown_quirks)

    @property
    def merged_calls(self) -> CallSettings:
        rule, provider = self.calls, self.provider.calls
        names = CallSettings.__struct_fields__
        chosen = {name: value for name in names if (value := getattr(rule, name)) is not None}
        return replace(provider, **chosen)


def strip_collection(provider: Provider, model: str) -> str:
    """The model's name without the collection that it may begin with, in a protocol of its provider."""
    for protocol in provider.protocols:
        collection = find_codec(protocol).http.model_collection
        while collection and model.startswith(collection):
            model = model[len(collection) :]
    return model


class Router:
    """Finds the targets of a model, under one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._exact_rules = {rule.name: rule for rule in config.models if not is_glob(rule.name)}
        patterns = (rule for rule in config.models if is_glob(rule.name))
        self._pattern_rules = sorted(patterns, key=lambda rule: len(rule.name), reverse=True)
        serving = ((pattern, provider) for provider in config.providers.values() for pattern in provider.models)
        self._served_patterns = sorted(serving, key=lambda row: (is_glob(row[0]), -len(row[0])))
        self._route_cache: dict[tuple[str, str], tuple[Target, ...]] = BoundedDict(MAX_CACHED_ROUTES)

    def route(self, model: str, key: ClientKey | None) -> tuple[Target, ...] | Failure:
        """The target of a model and its fallbacks, in order. A Failure for the client if there is none."""
        cache_key = (model, key.name if key is not None else "") if len(model) <= MAX_MODEL_NAME else ("", "")
        found = self._route_cache.get(cache_key)
        if found is not None:
            return found
        route = _refuse_name(model) or self._find_route(model, key)
        if not isinstance(route, Failure):  # names that lead nowhere are not worth the memory
            self._route_cache[cache_key] = route
        return route

    def list_models(self, key: ClientKey | None) -> tuple[ModelInfo, ...]:
        owners: dict[str, str] = {}
        rules = ((rule.name, rule.provider) for rule in self.config.models)
        shown = (provider for provider in self.config.providers.values() if _is_shown(provider))
        served = ((pattern, provider.name) for provider in shown for pattern in provider.models)
        for name, owner in (*rules, *served):
            if not is_glob(name) and is_allowed(key, name):
                owners.setdefault(name, owner)
        return tuple(ModelInfo(name, owner) for name, owner in owners.items())

    def find_target(self, name: str) -> Target | None:
        """The first target of a name, for any client. Not cached: lists of models ask for thousands of names."""
        return next(self.expand_targets(name), None) if is_usable_name(name) else None

    def is_ruled(self, name: str) -> bool:
        """Does a rule of `[models]` decide where this name leads?"""
        return isinstance(self.resolve_name(name, is_fallback=False), ModelRule)

    def may_use(self, name: str, key: ClientKey) -> bool:
        """May the client use the model with this name? Not cached, as `find_target`."""
        return is_allowed(key, name) and (key.has_all_providers or bool(keep_allowed(self.expand_targets(name), key)))

    def find_speaker(
        self, protocol: str, key: ClientKey | None, endpoint: PassthroughEndpoint | None = None
    ) -> Provider | None:
        """The first provider that speaks this protocol and has this endpoint, which is only forwarded; None for any."""
        providers = (one for one in self.config.providers.values() if not one.embedded and not one.is_key_missing)
        allowed = (one for one in providers if key is None or key.may_use_provider(one.name))
        return next((one for one in allowed if protocol in one.protocols and _forwards(one, protocol, endpoint)), None)

    def _find_route(self, model: str, key: ClientKey | None) -> tuple[Target, ...] | Failure:
        name = model.removeprefix("models/")
        if not name:
            message = f"the request does not name a model. {self._suggest_models(name, key)}"
            return Failure("invalid", message, 400, "missing_required_parameter", "model")
        if key is not None and not is_allowed(key, name):
            problem = f"the key `{key.name}` may not use the model `{name}`: the `models` of the key do not include it"
            if matches_globs(name, key.models):
                problem += ", because `*` does not match `:` or `@` (the operator can add `*:*` or the whole name)"
            return Failure("permission", f"{problem}. {self._suggest_models(name, key)}", 0, "", "model")
        found = tuple(self.expand_targets(name))
        targets = keep_allowed(found, key)
        if found and not targets and key is not None:
            what = f"the key `{key.name}` may not use the provider of the model `{name}`"
            hint = "the `providers` of the key do not include it"
            return Failure("permission", f"{what}: {hint}. {self._suggest_models(name, key)}", 0, "", "model")
        if not targets:
            message = f"unknown model `{name}`. {self.explain_name(name, key)}{self._suggest_models(name, key)}"
            return Failure("not_found", message, 0, "model_not_found", "model")
        return tuple({(target.provider.name, target.model, target.protocol): target for target in targets}.values())

    def expand_targets(self, name: str, seen: frozenset[str] = frozenset()) -> Iterator[Target]:
        """The target of a name, then those of its fallbacks. A name that falls back to itself is skipped."""
        found = self.resolve_name(name, is_fallback=bool(seen))
        if isinstance(found, Target):
            yield found
        elif found is not None and found.name not in seen:
            provider = self.config.providers[found.provider]
            model = strip_collection(provider, found.model or name)
            yield Target(provider, model, found.protocol, found.max_output_tokens, found)
            for fallback in found.fallbacks:
                yield from self.expand_targets(fallback, seen | {found.name})

    def resolve_name(self, name: str, is_fallback: bool) -> ModelRule | Target | None:
        """The rule or target of one name. Patterns come before `provider/model` in a client's request, but not in a
        fallback: the operator means the provider."""
        if name in self._exact_rules:
            return self._exact_rules[name]
        pattern_rule = next((rule for rule in self._pattern_rules if matches_globs(name, (rule.name,))), None)
        first, _, rest = name.partition("/")
        provider = self.config.providers.get(first) if rest else None
        direct = Target(provider, strip_collection(provider, rest)) if provider is not None else None
        found = direct or pattern_rule if is_fallback else pattern_rule or direct
        if found is not None:
            return found
        serving = (provider for pattern, provider in self._served_patterns if matches_globs(name, (pattern,)))
        return next((Target(provider, name) for provider in serving), None)

    def explain_name(self, name: str, key: ClientKey | None = None) -> str:
        """What an unknown name probably means: another name, and whose model that is and how to get it. Else ""."""
        meant = self._find_meant_name(name, key)
        if not meant:
            return self._explain_owner(name, key)
        is_known = next(self.expand_targets(meant), None) is not None
        return f"Did you mean `{meant}`? {'' if is_known else self._explain_owner(meant, key)}"

    def _find_meant_name(self, name: str, key: ClientKey | None) -> str:
        """A name that was probably misspelled: in its provider, as a whole, or in the first word of its family."""
        if len(name) > MAX_MISSPELLED or find_owner(name)[0] or name.partition("/")[0] in UNSUPPORTED_SERVERS:
            return ""
        first, slash, rest = name.partition("/")
        usable = self._list_usable(key)
        providers = [one.removesuffix("/*") for one in usable if one.endswith("/*")]
        if slash and first not in providers:
            near = nearest_name(first, [*providers, *known_servers()])
            return f"{near}/{rest}" if near else ""
        near = nearest_name(name, [one for one in usable if not is_glob(one)])
        if near or slash:
            return near
        word, dash, rest = name.partition("-")
        patterns = (pattern for server in known_servers().values() for pattern in server.models)
        words = [pattern.removesuffix("-*") for pattern in patterns if pattern.endswith("-*")]
        near = nearest_name(word, words) if dash and word.isalpha() else ""
        return f"{near}-{rest}" if near else ""

    def _explain_owner(self, name: str, key: ClientKey | None) -> str:
        """Whose model this is, and how to get it, if its name is one of a well-known server. Else ""."""
        prefix, _, rest = name.partition("/")
        if rest and prefix in UNSUPPORTED_SERVERS:
            return f"{UNSUPPORTED_SERVERS[prefix]}. "
        server, family = find_owner(name)
        if not server:
            return ""
        row = known_servers()[server]
        configured = next((one for one in self.config.providers.values() if one.kind == server), None)
        direct = f"{configured.name}/{rest if family == f'{server}/*' else name}" if configured is not None else ""
        variables = " and ".join(row.needed_variables)
        if direct:
            todo = f"ask for `{direct}`, or add a route under [models]"
        elif row.only_if_named:
            todo = f"add [providers.{server}] and set {variables}, or add a route under [models]"
        elif not variables:
            todo = f"add [providers.{server}]"
        elif family:
            todo = f"set {variables} and start again, or add a route under [models]"
        else:
            todo = f"set {variables} or add [providers.{server}], then ask for `{server}/{name}`"
        if direct and key is not None and not self.may_use(direct, key):
            todo = "add a route under [models]"
        owner = f"{family} models are {row.title}'s" if family else f"it looks like a model of {row.title}"
        return f"{owner}: {todo}. "

    def _suggest_models(self, name: str, key: ClientKey | None) -> str:
        """The models that the client can use, the most similar name first."""
        usable = self._list_usable(key)
        near = nearest_name(name, usable)
        shown = ([near] if near else []) + [name for name in usable if name != near]
        more = f" and {len(shown) - MAX_SUGGESTIONS} more" if len(shown) > MAX_SUGGESTIONS else ""
        return f"Available: {', '.join(shown[:MAX_SUGGESTIONS])}{more}" if shown else "No model is configured"

    def _list_usable(self, key: ClientKey | None) -> list[str]:
        """The names and patterns that the client can use."""
        rules = [rule.name for rule in self.config.models]
        served = [pattern for pattern, provider in self._served_patterns if _is_shown(provider)]
        prefixes = [f"{one.name}/*" for one in self.config.providers.values() if not one.embedded]
        usable = list(dict.fromkeys([*rules, *served, *prefixes]))
        if key is not None:
            usable = [name for name in usable if self.may_use(name, key)]
            usable = list(dict.fromkeys([*usable, *(pattern for pattern in key.models if pattern != "*")]))
        return usable


def find_owner(name: str) -> tuple[str, str]:
    """The well-known server that has a model of this name, and the pattern that says so; ("", "") if there is none. The
    pattern is empty if the name only looks like one of the server's."""
    prefix, _, rest = name.partition("/")
    if rest and prefix in known_servers():
        return prefix, f"{prefix}/*"
    for server, row in known_servers().items():
        if row.name_shape and re.fullmatch(row.name_shape, name):
            return server, ""
    families = [(server, pattern) for server, row in known_servers().items() for pattern in row.models]
    return next((family for family in families if matches_globs(name, (family[1],))), ("", ""))


def _is_shown(provider: Provider) -> bool:
    """The models `demo-…` are not listed beside those of real providers."""
    return provider.list_models or not provider.embedded


def _refuse_name(name: str) -> Failure | None:
    """Why a model cannot have this name. Some protocols write the name into a path."""
    if len(name) > MAX_MODEL_NAME:
        what = f"the name of the model is longer than {MAX_MODEL_NAME} characters"
        return Failure("invalid", what, 400, "invalid_value", "model")
    if _DOUBTFUL_NAME.search(name):
        what = "the name of the model has characters that could make it another name (%, \\, ?, .., control characters)"
        return Failure("invalid", what, 400, "invalid_value", "model")
    return None


def is_usable_name(name: str) -> bool:
    return bool(name) and _refuse_name(name) is None


VARIANT_MARKS = ":@"
"""OpenRouter adds tools or chooses another model by what follows them (`gpt-x:online`, `gpt-x@preset/cheap`)."""


def keep_allowed(targets: Iterable[Target], key: ClientKey | None) -> tuple[Target, ...]:
    """The targets whose provider the client may use."""
    return tuple(one for one in targets if key is None or key.may_use_provider(one.provider.name))


def is_allowed(key: ClientKey | None, name: str) -> bool:
    return key is None or any(allows_name(pattern, name) for pattern in key.models)


def allows_name(pattern: str, name: str) -> bool:
    """Does a pattern of a key allow this name? `*` and `provider/*` allow everything; in all others, `*` and `?` match
    the marks of variants only if the pattern has them itself (`gpt-x*:*`)."""
    if not matches_globs(name, (pattern,)):
        return False
    provider, _, rest = pattern.rpartition("/")
    is_whole = rest == "*" and "/" not in provider and not is_glob(provider)
    return is_whole or all(mark not in name or mark in pattern for mark in VARIANT_MARKS)


def _forwards(provider: Provider, protocol: str, endpoint: PassthroughEndpoint | None) -> bool:
    """Has it this endpoint, or any, that is only forwarded? Most clouds offer the models alone."""
    endpoints = codec_with_quirks(protocol, provider.quirks, provider.platform).http.passthrough_endpoints
    return bool(endpoints) if endpoint is None else endpoint in endpoints


# --- protocols ---


def choose_codec(target: Target, client: Codec, has_tools: Callable[[], bool]) -> Codec:
    with_tools, without = choose_codecs(target, client)
    return with_tools if with_tools is without or has_tools() else without


def choose_codecs(target: Target, client: Codec) -> tuple[Codec, Codec]:
    """The codecs to ask the target with, for requests with tools and without: that of the pinned protocol; else the
    client's, if the provider supports the model in it; else the provider's first that does. Quirks of the provider make
    it a different codec than the client's."""
    provider, model, quirks = target.provider, target.model, target.quirks
    if target.protocol:
        pinned = codec_with_quirks(target.protocol, quirks, provider.platform)
        return pinned, pinned
    names = [*([client.name] if client.name in provider.protocols else []), *provider.protocols]
    spoken = [codec_with_quirks(name, quirks, provider.platform) for name in names]
    # A protocol that supports a model with tools supports it without.
    supporting = [codec for codec in spoken if codec.supports_model(model, True)]
    others = [codec for codec in spoken if codec in supporting or codec.supports_model(model, False)]
    first = codec_with_quirks(provider.protocols[0], quirks, provider.platform)
    with_tools, without = ((found or [first])[0] for found in (supporting, others))
    return with_tools, without


@cache
def codec_with_quirks(protocol: str, quirks: tuple[str, ...], platform: str = "") -> Codec:
    """The codec for servers with these quirks, on this platform; the codec itself if it differs in nothing."""
    plain = _codec_on_platform(find_codec(protocol), platform)
    known = [plain.quirks[name] for name in quirks if name in plain.quirks]
    if not known:
        return plain
    changes = {name: value for quirk in known for name, value in quirk.constraints.items()}
    http_changes = {name: value for quirk in known for name, value in quirk.http.items()}
    rewrites = [quirk.rewrite_body for quirk in known if quirk.rewrite_body is not None]

    def write_request(request: Request, ledger: Ledger) -> Object:
        body = plain.write_request(request, ledger)
        for rewrite in rewrites:
            body = rewrite(body, request.model, ledger)
        return body

    return replace(
        plain,
        constraints=replace(plain.constraints, **changes),
        http=replace(plain.http, **http_changes),
        write_request=write_request if rewrites else plain.write_request,
        rewritten_markers=_join_markers(plain, known),
    )


def _join_markers(plain: Codec, known: list[Quirk]) -> tuple[bytes, ...] | None:
    """See `Codec.rewritten_markers`."""
    if plain.rewritten_markers is None or not all(one.markers for one in known):
        return None
    return sum([one.markers for one in known], ())


def _codec_on_platform(codec: Codec, name: str) -> Codec:
    platform = codec.platforms.get(name)
    if platform is None:
        return codec
    return replace(
        codec,
        http=replace(codec.http, **platform.http),
        supports_model=platform.supports_model or codec.supports_model,
        rewritten_markers=None if platform.reads_all else codec.rewritten_markers,
    )
