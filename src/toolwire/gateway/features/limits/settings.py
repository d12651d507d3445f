"""`[[limits]]` and `[counters]`. A URL may contain a password and is never shown in full."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal, Self, get_args
from urllib.parse import urlsplit

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from toolwire.gateway.features.limits.counters import Unit
from toolwire.gateway.settings.client_keys import ClientNames, check_globs, read_client_names
from toolwire.gateway.settings.config import ClientKey, LimitAmounts, Section, SectionInput, find_password
from toolwire.gateway.settings.problems import ProblemCollector, suggest_name
from toolwire.gateway.settings.providers import list_provider_names
from toolwire.gateway.settings.store import (
    NO_STORE,
    POSTGRES_SCHEMES,
    check_postgres_url,
    find_url,
    read_url,
    store_url,
)
from toolwire.policy.rules import Globs, matches_globs
from toolwire.terminal.packages import describe_missing_package, is_installed

REDIS_SCHEMES = ("redis", "rediss", "unix", "valkey", "valkeys")
Measure = Literal["requests", "tokens", "dollars", "parallel_requests"]
AMOUNTS: Mapping[str, tuple[Measure, Unit]] = {
    "requests_per_minute": ("requests", "minute"),
    "tokens_per_minute": ("tokens", "minute"),
    "tokens_per_hour": ("tokens", "hour"),
    "tokens_per_day": ("tokens", "day"),
    "tokens_per_month": ("tokens", "month"),
    "dollars_per_hour": ("dollars", "hour"),
    "dollars_per_day": ("dollars", "day"),
    "dollars_per_month": ("dollars", "month"),
    "parallel_requests": ("parallel_requests", "none"),
}
"""What each amount of a limit counts, and for how long."""
AMOUNT_FIELDS = tuple(AMOUNTS)
MONEY_FIELDS = tuple(field for field in AMOUNT_FIELDS if field.startswith("dollars"))
MAX_NAME = 100
LimitSelector = Literal["key", "team", "provider", "model", "agent"]
SELECTORS: tuple[LimitSelector, ...] = get_args(LimitSelector)
_URL_FORMS = "redis://HOST:PORT/DATABASE, or postgresql://USER@HOST/DATABASE"


class Limit(LimitAmounts, frozen=True, kw_only=True):
    """A limit on what the selected requests use together. Windows are minutes, hours, days and months of UTC. A request
    counts in the window in which it began."""

    name: str = ""
    """Its name in errors, logs and metrics. By default what it selects. Under another name it counts from 0."""
    key: Globs = ()
    """Client keys by their names. Here and below: a name or a list of names and patterns; without any, all requests."""
    team: Globs = ()
    """Teams of client keys."""
    provider: Globs = ()
    """Providers that are asked. A request that reaches such a limit goes to the fallbacks of its model first."""
    model: Globs = ()
    """Models, by their names at the provider."""
    agent: Globs = ()
    """Agents, recognised by the `user-agent` header. Any client can claim to be any agent, so this is no protection."""
    per: tuple[LimitSelector, ...] = ()
    """Count separately for each `key`, `team`, `provider`, `model` or `agent`."""
    soft: bool = False
    """Refuse nothing: only warn, in the log and in the metrics."""
    on_store_down: Literal["open", "closed"] | None = None
    """If the counters cannot be reached: let requests pass without counting them (`open`), or refuse them (`closed`).
    Default: `closed` for dollars, `open` for everything else."""
    on_unknown_price: Literal["open", "closed"] = "closed"
    """Models, and tools that the provider runs, whose price is not known or not counted: refuse them where a limit in
    dollars applies (`closed`), or let them pass without counting them (`open`)."""

    def selects(self, values: Mapping[str, str]) -> bool:
        """Is it for these values of selectors? Models are in lower case: some providers take their names in any."""
        return all(_matches(value, getattr(self, name), name) for name, value in values.items())


def _matches(value: str, globs: Globs, selector: str) -> bool:
    globs = tuple(map(str.lower, globs)) if selector == "model" else globs
    return not globs or (bool(value) and matches_globs(value, globs))


class CounterSettings(Struct, frozen=True, kw_only=True):
    """Where the counters of `[[limits]]` are. Gateways with the same counters share their limits."""

    url: str = ""
    """`redis://HOST:PORT/DATABASE` (also `rediss`, `unix`, `valkey` and `valkeys`), or `postgresql://USER@HOST/DATABASE`.
    Default: the `[store]`; with SQLite in memory, and in its file for a restart and for several workers."""
    url_env: str = ""
    """The environment variable with the URL, to keep its password out of this file."""
    lease: Annotated[float, Meta(ge=1, le=3600)] = 30.0
    """After how many seconds without a sign of life from its gateway a request gives back what it had reserved."""

    def __repr__(self) -> str:  # the URL may contain a password
        return f"Counters(lease={self.lease})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("lease", self.lease)]


class LimitSettings(Section, frozen=True, kw_only=True):
    """The limits, with those of client keys, and where they are counted."""

    limits: tuple[Limit, ...] = ()
    counters: CounterSettings = CounterSettings()

    @classmethod
    def list_tables(cls) -> Mapping[str, type[Struct]]:
        return {"[[limits]]": Limit, "[counters]": CounterSettings}

    @classmethod
    def read(cls, source: SectionInput) -> Self:
        server, place = source.config.server, source.collector.at("limits")
        names = list_provider_names(source.config.providers)
        limits = read_limits(source.tables.get("limits", []), place, names, read_client_names(server))
        counters = read_counters(source.tables.get("counters", {}), source.environ, source.collector.at("counters"))
        return cls(limits=limits, counters=counters).add_keys(server.keys)

    def add_keys(self, keys: Iterable[ClientKey]) -> Self:
        """With the limits that are written in these keys."""
        return replace(self, limits=(*self.limits, *_limits_of_keys(keys)))

    def check(self, source: SectionInput) -> None:
        """Several workers must share their counters, or each would allow as much as all of them together may use."""
        workers, store = source.config.server.workers, store_url(source.config.store, source.environ)
        has_place = find_url(self.counters, source.environ) or store != NO_STORE
        if self.limits and workers > 1 and not has_place:
            what = f"{workers} workers cannot share limits without a store"
            hint = 'remove `url = "none"` from [store], or add [counters] with a `url`'
            source.collector.at("limits").add(what, hint)

    @property
    def secrets(self) -> Iterable[str]:
        return find_password(self.counters.url)


def read_limits(
    value: object, place: ProblemCollector, providers: Collection[str], clients: ClientNames
) -> tuple[Limit, ...]:
    """The limits of the file, each with a name."""
    if not isinstance(value, list):
        place.add("`limits` must be a list of tables", "write `[[limits]]`")
        return ()
    limits: list[Limit] = []
    for number, table in enumerate(value):
        limit = _read_limit(table, place.at(number), providers, clients)
        if limit is None:
            continue
        if any(other.name == limit.name for other in limits):
            place.at(number).add(f"there are two limits `{limit.name}`", 'give each a name: `name = "…"`')
        limits.append(limit)
    return tuple(limits)


def _read_limit(
    value: object, place: ProblemCollector, providers: Collection[str], clients: ClientNames
) -> Limit | None:
    table = place.expect_table(value)
    is_list = (*SELECTORS, "per")
    given = {key: [value] if key in is_list and isinstance(value, str) else value for key, value in table.items()}
    values = place.read_fields(given, Limit)
    if values is None:
        return None
    limit = Limit(**values)
    if table.keys().isdisjoint(AMOUNT_FIELDS):
        place.add("this limit has no amount", f"add one of: {', '.join(AMOUNT_FIELDS)}")
    if limit.soft and limit.on_store_down is not None:
        place.at("on_store_down").add("a soft limit refuses nothing", "remove `on_store_down` or `soft`")
    if not limit.name.isprintable() or len(limit.name) > MAX_NAME:
        place.at("name").add("not a usable name", f"at most {MAX_NAME} characters, and no control characters")
    clients.check_globs("client key", clients.keys, limit.key, place.at("key"))
    clients.check_globs("team", clients.teams, limit.team, place.at("team"))
    if limit.provider:
        check_globs("provider", providers, limit.provider, place.at("provider"))
    return limit if limit.name else replace(limit, name=describe_selection(limit))


def describe_selection(limit: Limit) -> str:
    """What a limit selects, in words: `team app, each key`."""
    words = [f"{name} {'|'.join(globs)}" for name in SELECTORS if (globs := getattr(limit, name))]
    words += [f"each {' and '.join(limit.per)}"] if limit.per else []
    return (", ".join(words) or "all requests") + (" (soft)" if limit.soft else "")


def _limits_of_keys(keys: Iterable[ClientKey]) -> tuple[Limit, ...]:
    return tuple(
        Limit(name=f"key {key.name} (own)", key=(key.name,), **asdict(key.limits))
        for key in keys
        if key.limits != LimitAmounts()
    )


def describe_amounts(limit: LimitAmounts) -> str:
    """The amounts of a limit: `60 requests per minute, $50 per day`."""
    return ", ".join(
        describe_amount(field, amount) for field in AMOUNT_FIELDS if (amount := getattr(limit, field)) is not None
    )


def describe_amount(field: str, amount: float) -> str:
    what, _, unit = field.partition("_per_")
    if what == "dollars":
        return f"${amount:,.10g} per {unit}"
    return f"{amount:,.0f} {what.replace('_', ' ')} per {unit}" if unit else f"{amount:,.0f} {what.replace('_', ' ')}"


def read_counters(table: object, environ: Mapping[str, str], place: ProblemCollector) -> CounterSettings:
    settings = CounterSettings(**place.read_fields(table, CounterSettings) or {})
    if url := read_url(settings, environ, place, "limits would be counted in another place"):
        _check_url(url, place.at("url_env" if settings.url_env else "url"))
    return settings


def is_redis_url(url: str) -> bool:
    return url.partition("://")[0] in REDIS_SCHEMES


def _check_url(url: str, place: ProblemCollector) -> None:
    scheme, colon, rest = url.partition("://")
    if colon and scheme in POSTGRES_SCHEMES:
        check_postgres_url(url, place)
    elif not colon or scheme not in REDIS_SCHEMES:
        near = suggest_name(scheme, (*REDIS_SCHEMES, *POSTGRES_SCHEMES))
        place.add("not a valid URL of counters", near if near.startswith("did") else f"choose from: {_URL_FORMS}")
    elif not _is_redis_address(url, rest):
        place.add("not a valid Redis URL", "write redis://:PASSWORD@HOST:PORT/DATABASE, the database is a number")
    elif not is_installed("redis"):
        place.add(*describe_missing_package("Redis", "redis"))


def _is_redis_address(url: str, rest: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # its text may contain a part of the password
        return False
    if parts.scheme == "unix":
        return bool(parts.path)
    return bool(parts.hostname) and (parts.path in ("", "/") or parts.path[1:].isdecimal())
