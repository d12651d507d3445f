"""`[models]`: the rules for names of models, the routes of the command line, and checks of fallbacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from toolwire.gateway.settings.config import Config, ModelRule, ServerSettings
from toolwire.gateway.settings.problems import ProblemCollector, TomlTable, suggest_name
from toolwire.gateway.settings.providers import ProviderBuilder, check_tool_format, embedded_providers, known_servers
from toolwire.gateway.settings.router import Router, find_owner
from toolwire.protocols import CODECS

ROUTE_OPTION = "--route"
MAX_PROBLEMS = 200
"""After these, fallbacks are not checked any more."""
MAX_FALLBACK_CHAIN = 50
"""Rules whose fallbacks lead from one to the next. Requests follow the whole chain."""


def read_model_rules(tables: TomlTable, collector: ProblemCollector) -> list[ModelRule]:
    rules: list[ModelRule] = []
    for name, table in tables.items():
        place = collector.at("models", name)
        if isinstance(table, str):  # the short form: name = "provider/model"
            provider, _, model = table.partition("/")
            rules.append(ModelRule(name=name, provider=provider, model=model))
            continue
        if not isinstance(table, dict):
            place.add(f'`{name}` must be a table or "provider/model"')
            continue
        if table.keys() == {"facts"}:  # says something about the model, and leaves its provider as it is
            continue
        given = place.read_fields(table, ModelRule, ("name", "facts"))
        if "name" in table:
            place.at("name").add("unknown key `name`", "the name is in the brackets: [models.NAME]")
        if given is not None:
            model = "" if given.get("model") == "*" else given.get("model", "")
            protocol = given.get("protocol", "").replace("_", "-")
            rules.append(ModelRule(**{**given, "name": name, "model": model, "protocol": protocol}))
    return rules


def check_rule(rule: ModelRule, providers: ProviderBuilder, place: ProblemCollector, server: ServerSettings) -> bool:
    """Check the provider and the protocol of a rule; create the known servers that it uses."""
    for key, used in (*(("fallbacks", name) for name in rule.fallbacks), ("describe_images", rule.describe_images)):
        name, slash, _ = (used or "").partition("/")
        if slash:
            providers.ensure_provider(name, place.at(key))
    embedded = embedded_providers(()) if server.loopback else {}
    if rule.provider not in embedded and not providers.ensure_provider(rule.provider, place.at("provider")):
        owner = "" if rule.model else find_owner(rule.provider)[0]
        if owner:  # fast = "gpt-5.5"
            place.at("provider").add(f"`{rule.provider}` names no provider", f'write "{owner}/{rule.provider}"')
            return False
        hint = suggest_name(rule.provider, [*providers.names, *embedded])
        place.at("provider").add(f"unknown provider `{rule.provider}`", hint)
        return False
    provider = providers.providers.get(rule.provider) or embedded.get(rule.provider)
    protocols = provider.protocols if provider is not None else tuple(CODECS)
    if rule.tool_format is not None:
        check_tool_format(rule.tool_format, place.at("tool_format"))
    if rule.protocol and rule.protocol not in protocols:
        wrong = f"`{rule.provider}` does not speak `{rule.protocol}`"
        place.at("protocol").add(wrong, f"it speaks: {', '.join(protocols)}")
    return True


def add_routes(config: Config, routes: Mapping[str, str], collector: ProblemCollector) -> Config:
    """Add the routes of the command line. Each is resolved with the file's rules alone, so none can be circular; they
    win over rules of the same name."""
    router = Router(config)
    rules = {rule.name: rule for rule in config.models}
    unknown: set[str] = set()
    for name, model in routes.items():
        found = router.resolve_name(model, is_fallback=True)
        if isinstance(found, ModelRule):
            rules[name] = replace(found, name=name, model=found.model or model)
        elif found is not None:
            rules[name] = ModelRule(name=name, provider=found.provider.name, model=found.model)
        elif model not in unknown:  # an agent has several names for one model
            unknown.add(model)
            first, slash, _ = model.partition("/")
            if slash:
                names = {**config.providers, **known_servers()}
                wrong, hint = f"unknown provider `{first}`", suggest_name(first, names)
            else:
                served = [known for provider in config.providers.values() for known in provider.models]
                hint = router.explain_name(model).strip() or suggest_name(model, [*rules, *served])
                wrong = f"no provider serves the model `{model}`"
            collector.at(ROUTE_OPTION).add(wrong if name == model else f"`{name}={model}`: {wrong}", hint)
    return replace(config, models=tuple(rules.values()))


def check_fallbacks(config: Config, collector: ProblemCollector) -> None:
    """Check that every fallback exists, that none leads back to its own rule, and that chains of them are short."""
    router = Router(config)
    onward = {
        rule.name: [
            found.name
            for fallback in rule.fallbacks
            if isinstance(found := router.resolve_name(fallback, is_fallback=True), ModelRule)
        ]
        for rule in config.models
    }
    chains = _chain_lengths(onward)
    for rule in config.models:
        if chains.get(rule.name, 0) > MAX_FALLBACK_CHAIN:
            wrong = f"more than {MAX_FALLBACK_CHAIN} fallbacks follow one another"
            collector.at("models", rule.name, "fallbacks").add(wrong, "list the fallbacks in one rule instead")
            break
    for rule in config.models:
        if len(collector.problems) > MAX_PROBLEMS:  # each takes a search for a similar name
            break
        for number, fallback in enumerate(rule.fallbacks):
            place = collector.at("models", rule.name, "fallbacks", number)
            found = router.resolve_name(fallback, is_fallback=True)
            if found is None:
                name, slash, _ = fallback.partition("/")
                names = [other.name for other in config.models if other is not rule]
                if slash:
                    place.add(f"unknown provider `{name}`", suggest_name(name, config.providers))
                else:
                    owner = find_owner(fallback)[0]
                    hint = f'write "{owner}/{fallback}"' if owner else suggest_name(fallback, names)
                    place.add(f"the fallback `{fallback}` does not exist", hint)
            elif (
                isinstance(found, ModelRule) and rule.name not in chains and _leads_back(onward, found.name, rule.name)
            ):
                wrong = f"the fallback `{fallback}` leads back to `{rule.name}`"
                place.add(wrong, "a chain of fallbacks must end; `provider/model` skips [models]")


def check_image_models(config: Config, collector: ProblemCollector) -> None:
    router = Router(config)
    places = [
        *((collector.at("providers", name), provider.calls) for name, provider in config.providers.items()),
        *((collector.at("models", rule.name), rule) for rule in config.models),
    ]
    for place, settings in places:
        model = settings.describe_images
        if model is not None and model != "off" and router.find_target(model) is None:
            name = model.partition("/")[0]
            wrong = f"no provider serves the model `{model}`, which should describe images"
            place.at("describe_images").add(wrong, suggest_name(name, config.providers) or 'write "PROVIDER/MODEL"')


def _chain_lengths(onward: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
    """How many rules follow each rule; without the rules from which a circle can be reached. From the ends of the
    chains back to their starts, so that each rule is visited once."""
    open_ends = {name: len(followers) for name, followers in onward.items()}
    before: dict[str, list[str]] = {}
    for name, followers in onward.items():
        for follower in followers:
            before.setdefault(follower, []).append(name)
    lengths = {name: 0 for name, count in open_ends.items() if not count}
    ready = [*lengths]
    while ready:
        name = ready.pop()
        for earlier in before.get(name, ()):
            lengths[earlier] = max(lengths.get(earlier, 0), lengths[name] + 1)
            open_ends[earlier] -= 1
            if not open_ends[earlier]:
                ready.append(earlier)
    return {name: length for name, length in lengths.items() if not open_ends[name]}


def _leads_back(onward: Mapping[str, Sequence[str]], first: str, start: str) -> bool:
    waiting, seen = [first], {first}
    while waiting and start not in seen:
        followers = [name for name in onward.get(waiting.pop(), ()) if name not in seen]
        seen.update(followers)
        waiting += followers
    return start in seen
