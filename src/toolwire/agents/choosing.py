"""Which model an agent is told of, which it really gets, and the routes that this takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from toolwire.agents.asking import Gateway
from toolwire.agents.data import Agent, agents
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.providers import LOOPBACK
from toolwire.gateway.settings.routing import Router, Unroutable

Knows = Callable[[str], bool]


class Choice(Struct, frozen=True, kw_only=True):
    """What an agent is told, what it gets for it, and why a gateway that is running will not do."""

    told: str
    model: str
    routes: dict[str, str]
    """What a gateway of its own would need besides the file."""
    unfit: str = ""


def chosen(agent: Agent, model: str, told: str, config: Config, running: Gateway | None) -> Choice | None:
    """The choice; None when there are providers but nobody can guess which of their models is meant."""
    here = _routes(config)
    places: list[Knows] = [here] if running is None else [running.knows, here]
    named = model or next(filter(None, (_first(agent, config, knows) for knows in places)), "")
    if not named:
        if any(not provider.embedded for provider in config.providers.values()):
            return None
        named = LOOPBACK
    told = told or named
    routes = {told: named} if told != named or not here(named) else {}  # a route brings a provider that nobody named
    helpers = {**agent.helpers, **agent.seldom}
    routes |= {pattern: named for pattern, sample in helpers.items() if not here(sample)}
    return Choice(told=told, model=named, routes=routes, unfit=_unfit(agent, told, running) if running else "")


def _unfit(agent: Agent, told: str, running: Gateway) -> str:
    for name in (told, *agent.helpers.values()):
        failure = running.refuses(name)
        if failure is not None:
            return f"the one at {running.origin} does not serve {name}: {failure.message}"
    return ""


def _first(agent: Agent, config: Config, knows: Knows) -> str:
    """The agent's own, a configured one, or what another agent would take of the same vendor's."""
    return next((name for name in _candidates(agent, config) if knows(name)), "")


def _candidates(agent: Agent, config: Config) -> Iterator[str]:
    yield from (agent.model,) if agent.model else ()
    yield from (rule.name for rule in config.models if "*" not in rule.name and "?" not in rule.name)
    yield from (other.model for other in agents().values() if other.model)


def _routes(config: Config) -> Knows:
    """Does this configuration lead somewhere, with a key where one is needed?"""
    router = Router(config)

    def knows(name: str) -> bool:
        targets = router.route(name, None)
        return not isinstance(targets, Unroutable) and not targets[0].provider.key_missing

    return knows
