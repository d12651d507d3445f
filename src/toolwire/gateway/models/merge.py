"""The list of models that clients see: the names in the configuration, and what the providers offer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from toolwire.core.codec import ModelInfo
from toolwire.gateway.models.facts import FactFinder
from toolwire.gateway.models.listing import ProviderList
from toolwire.gateway.settings.config import ClientKey, Provider
from toolwire.gateway.settings.router import Router, Target
from toolwire.policy.rules import matches_globs


def merge_models(router: Router, lists: Iterable[ProviderList]) -> tuple[ModelInfo, ...]:
    """All models under the names that reach them, each with the provider that serves it and what is known about it.

    A listed model has its own name if that leads to its provider, else `provider/model`. If a pattern in `[models]`
    catches its own name, that name is listed, too, for the provider that the pattern leads to.
    """
    known = [one for one in lists if one.models is not None]
    listed = {(one.provider.name, model.id): model for one in known for model in one.models or ()}
    finder = FactFinder(router)
    out: dict[str, ModelInfo] = {}
    for name in _names(router, known):
        target = router.find_target(name)
        if name in out or target is None:
            continue
        entry = listed.get((target.provider.name, target.model), ModelInfo(name))
        out[name] = _rename_entry(entry, name, target, finder)
    return tuple(out.values())


def _names(router: Router, lists: Iterable[ProviderList]) -> Iterator[str]:
    """The names to list: those of the configuration, then those of the providers, the embedded model last."""
    configured = [model.id for model in router.list_models(None)]
    embedded = {model.id for model in router.list_models(None) if router.config.providers[model.owner].embedded}
    yield from (name for name in configured if name not in embedded)
    for one in lists:
        for model in one.models or ():
            yield from _names_of(router, one.provider, model.id)
    yield from (name for name in configured if name in embedded)


def _names_of(router: Router, provider: Provider, model: str) -> Iterator[str]:
    target = router.find_target(model)
    if target is not None and target.provider is provider and target.model == model:
        yield model
        return
    full = f"{provider.name}/{model}"
    direct = router.find_target(full)
    if direct is not None and direct.provider is provider and direct.model == model:
        yield full
    if target is not None and router.is_ruled(model):
        yield model


def filter_models(router: Router, models: Iterable[ModelInfo], key: ClientKey | None) -> tuple[ModelInfo, ...]:
    if key is None or (not key.is_restricted and key.has_all_providers):
        return tuple(models)
    return tuple(model for model in models if router.may_use(model.id, key))


def may_use_provider(provider: Provider, key: ClientKey | None) -> bool:
    """Could the client use any model of this provider? Others are not mentioned to it."""
    if key is None:
        return True
    if not key.may_use_provider(provider.name) or not key.is_restricted:
        return key.may_use_provider(provider.name)
    names = (f"{provider.name}/…", *provider.models)
    return any(
        pattern.startswith(f"{provider.name}/")
        or any(matches_globs(name, (pattern,)) or matches_globs(pattern, (name,)) for name in names)
        for pattern in key.models
    )


def describe_model(router: Router, name: str, target: Target, lists: Iterable[ProviderList]) -> ModelInfo:
    """One model by the name that a client used. It need not be in a list: not all providers list every name."""
    entry = find_listed(target, lists) or ModelInfo(name)
    return _rename_entry(entry, name, target, FactFinder(router))


def find_listed(target: Target, lists: Iterable[ProviderList]) -> ModelInfo | None:
    listed = (model for one in lists if one.provider is target.provider for model in one.models or ())
    return next((model for model in listed if model.id == target.model), None)


def _rename_entry(entry: ModelInfo, name: str, target: Target, finder: FactFinder) -> ModelInfo:
    """An entry of a provider's list under the name that clients use."""
    facts = finder.find_target_facts(name, target, entry.facts)
    title = entry.display_name if name.endswith(entry.id) else ""  # the title is not that of an alias
    return replace(entry, id=name, owner=target.provider.name, facts=facts, display_name=title)
