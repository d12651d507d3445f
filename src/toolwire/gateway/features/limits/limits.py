"""The limits of one configuration: which apply to a request, what it reserves of them, and what it has used.

Who a request counts for comes from its key alone. Only `agent` is what the client says of itself.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from time import monotonic
from typing import TypeAlias, final

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.bounded_dict import BoundedDict
from toolwire.core.codec import Codec, RateLimit
from toolwire.core.errors import MAX_WAIT
from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure, Usage
from toolwire.core.rate_limits import write_timestamp
from toolwire.core.tokens import estimate_input, is_possible
from toolwire.gateway.exchange.client_body import ClientBody
from toolwire.gateway.exchange.hooks import ReadUsed, Refusal
from toolwire.gateway.exchange.method_cache import cache_method
from toolwire.gateway.features.limits.counters import Charge, CounterState, Reserved, Unit
from toolwire.gateway.features.limits.estimates import MAX_COUNTED, estimate_usage
from toolwire.gateway.features.limits.hosted_tools import HostedTool
from toolwire.gateway.features.limits.reservations import Reservations
from toolwire.gateway.features.limits.settings import (
    AMOUNT_FIELDS,
    AMOUNTS,
    MONEY_FIELDS,
    SELECTORS,
    Limit,
    Measure,
    describe_amount,
)
from toolwire.gateway.http.large_work import run_by_size
from toolwire.gateway.models.amounts import format_dollars, from_units
from toolwire.gateway.models.prices import FROM_FILE, PriceFinder, estimate_cost, find_prices
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.store.store import StoreDown
from toolwire.gateway.telemetry.call_prices import CallPricer
from toolwire.gateway.telemetry.metrics import LIMIT_REFUSALS, LIMIT_WARNINGS, Metrics
from toolwire.gateway.telemetry.record import CallUsage, ExchangeRecord
from toolwire.gateway.telemetry.running import RunningExchange

COUNTS_PER_DOLLAR = 1_000_000_000
"""Counters count billionths of a dollar: the numbers of Redis scripts are exact only up to 2^53, so not finer ones."""
TOKEN_STEP = 64
PRICE_SECONDS = 3600
"""Estimates are rounded up to so many tokens, and priced once for so many seconds, so that they can be cached."""
PARALLEL_RETRY_AFTER = 2.0
"""Seconds. Nobody knows when a running request ends."""
PARALLEL_SHOWN_SECONDS = 60.0
"""How long the metrics show how many requests ran at the same time when one was last started."""
STORE_RETRY_AFTER = 2.0
MAX_QUIET_SECONDS = 3600.0
"""A soft limit that is passed is logged once in its window, but at least so often."""
USE_FIELDS = tuple(field for field in AMOUNT_FIELDS if field.startswith(("tokens", "dollars")))
"""The amounts of a limit that a provider has to count."""
INNER_OPERATIONS = frozenset({"describe_image"})
"""Requests that the gateway makes itself while it serves one of a client: they use tokens, but are not requests."""
_MAX_CACHED = 4096
_MAX_GROUP = 100
"""Characters of a group in the name of a counter; a longer one is a digest there."""
_MAX_NOTED = 10_000
_NO_USAGE = Usage()


class LimitRule(Struct, frozen=True, eq=False):
    """One amount of a limit, for one group of requests."""

    limit: Limit
    field: str
    """Its key in the file, such as `tokens_per_day`."""
    measure: Measure
    unit: Unit
    counter: str
    group: str
    """The values of `per`, for people."""
    maximum: int
    """In the units of the counter."""
    depends_on_target: bool
    """Does it matter which provider and model are asked?"""
    gauge: int
    """Its cell in the metrics."""
    hard_maximum: int
    """The same as `maximum`, or -1 for a soft limit."""
    find_used: Callable[[int, int], Awaitable[int | StoreDown]] | None = None
    """Finds in the ledger what was used between two times; None if the ledger cannot say."""

    @property
    def needs_price(self) -> bool:
        """Are models without a known price refused?"""
        return self.measure == "dollars" and self.limit.on_unknown_price == "closed" and not self.limit.soft

    @property
    def is_closed(self) -> bool:
        """Are requests refused while the counters cannot be reached?"""
        default = "closed" if self.measure == "dollars" else "open"
        return not self.limit.soft and (self.limit.on_store_down or default) == "closed"


class RuleSet(Struct, frozen=True, eq=False):
    """All rules that apply to a request."""

    rules: tuple[LimitRule, ...]
    counts_tokens: bool
    counts_dollars: bool
    counts_use: bool
    price_rule: LimitRule | None = None
    """The first that refuses what has no known price."""
    plain_charges: tuple[Charge, ...] = ()
    """The charges, if they are the same for every request: none of tokens and dollars."""
    plain_amounts: tuple[int, ...] = ()
    """What every request settles then."""
    bounds_dollars: bool = False
    """Is one of them a hard one in dollars?"""


Amounts: TypeAlias = Mapping[str, int]
"""What a request will probably use, by measure, in the units of the counters."""


@final
class Reservation(Struct, eq=False, gc=False):
    """What a running request holds of its limits."""

    id: str
    rules: RuleSet
    limits: Limits
    estimate: Amounts
    first_call: int
    """The calls of providers before this one are settled already."""
    provider: Provider
    model: str
    size: int
    """Bytes of the body that was judged."""
    usage: Usage
    """What it will probably use."""
    held: Amounts
    """What is reserved for it in all."""
    additions: tuple[tuple[str, int], ...] = ()
    """What was reserved later: the ids, and how many charges each has."""

    def end(self, record: ExchangeRecord) -> None:
        self.limits.settle(record, self, requests=1)

    def holds(self, rules: RuleSet, provider: Provider, model: str, size: int) -> bool:
        """Is it enough for this request? Not if stored turns were added to it, or if it costs other prices."""
        if self.rules is not rules or (rules.counts_use and size > self.size):
            return False
        return not rules.counts_dollars or (self.provider.name == provider.name and self.model == model)


def _find_reservation(running: RunningExchange) -> Reservation | None:
    return next((one for one in running.holdings if type(one) is Reservation), None)


class Limits:
    """The limits of one configuration, with the counters of the process."""

    def __init__(
        self,
        limits: Sequence[Limit],
        providers: Mapping[str, Provider],
        reservations: Reservations,
        metrics: Metrics,
        log_event: Callable[..., None],
        read_used: ReadUsed | None = None,
    ) -> None:
        self._limits, self._pricer = limits, CallPricer(providers)
        self._reservations, self._metrics, self._log_event = reservations, metrics, log_event
        self._read_used = read_used
        self._find_rules = cache_method(self._build_rules, _MAX_CACHED)
        self._estimate_cost = lru_cache(_MAX_CACHED)(_estimate_dollars)
        self._rules_by_counters: dict[tuple[str, ...], RuleSet] = {}
        """Requests with the same counters have the same rules, whichever provider they go to."""
        self._warned_until: dict[str, float] = BoundedDict(_MAX_NOTED)
        """Counters of soft limits that were logged, and until when that is enough."""
        self._unpriced_models: dict[tuple[str, str], bool] = BoundedDict(_MAX_NOTED)
        """Models without a price that were logged."""

    async def reserve(
        self,
        running: RunningExchange,
        provider: Provider,
        model: str,
        body: ClientBody,
        max_output: int | None = None,
    ) -> Refusal | None:
        """Reserve what a request to this provider will probably use. The exchange holds it until it ends. A
        refusal if a limit does not allow it. `max_output` is the most output tokens that the operator allows."""
        record = running.record
        rules = self._rules_for(record, provider, model)
        held = _find_reservation(running)
        if held is not None:
            if held.holds(rules, provider, model, len(body.data)):
                return None  # another attempt at the same provider, or at one with the same limits
            self._release(running, held)
        if not rules.counts_use:
            return await self._hold(running, rules, _ONE_REQUEST, provider, model, len(body.data))
        usage = await run_by_size(len(body.data), partial(estimate_usage, body, max_output))
        found = self._estimate_use(record, rules, provider, model, usage)
        if type(found) is Refusal:  # `isinstance` is slow for a Struct that is not one
            return found
        return await self._hold(running, rules, found, provider, model, len(body.data), usage)

    async def reserve_extra(self, running: RunningExchange, extra: Usage) -> Refusal | None:
        """Reserve what a request costs more than what it has reserved: its service tier and its searches."""
        held = _find_reservation(running)
        if held is None:
            return None
        usage = replace(held.usage, service_tier=extra.service_tier, searches=extra.searches)
        if usage == held.usage:
            return None
        found = self._estimate_use(running.record, held.rules, held.provider, held.model, usage)
        refusal = found if type(found) is Refusal else await self._add(running.record, held, found)
        if type(found) is Refusal or refusal is not None:
            self._release(running, held)
            return refusal
        held.usage, held.estimate = usage, found
        return None

    def _release(self, running: RunningExchange, held: Reservation) -> None:
        """The request needs another reservation, or gets none."""
        self.settle(running.record, held, requests=0)
        running.holdings = tuple(one for one in running.holdings if one is not held)
        running.counts_use = False

    async def reserve_request(self, running: RunningExchange, provider: Provider, model: str) -> Refusal | None:
        """The same for a request that uses nothing which limits count, except that it is one."""
        rules = self._rules_for(running.record, provider, model, counts_use=False)
        return await self._hold(running, rules, _ONE_REQUEST, provider, model, 0)

    async def _hold(
        self,
        running: RunningExchange,
        rules: RuleSet,
        estimate: Amounts,
        provider: Provider,
        model: str,
        size: int,
        usage: Usage = _NO_USAGE,
    ) -> Refusal | None:
        if not rules.rules:
            return None
        charges = rules.plain_charges or _make_charges(rules.rules, estimate)
        result = await self._reservations.reserve(charges)
        if type(result) is StoreDown:
            return self._refuse_unreachable(rules.rules, result)
        id, reserved = result
        self._note_states(rules.rules, charges, reserved)
        if reserved.refused:
            return self._refuse(rules.rules, charges, reserved, estimate, running.record.started_at)
        first_call = len(running.record.costs.calls)
        held = Reservation(id, rules, self, estimate, first_call, provider, model, size, usage, estimate)
        running.holdings += (held,)
        running.counts_use = rules.counts_use
        running.reserve_round = self.reserve_round if rules.counts_use else None
        return None

    async def reserve_round(self, running: RunningExchange, codec: Codec, body: bytes) -> Failure | None:
        """Reserve what the next round of an answer will probably use, and what the rounds before it have used beyond
        what was reserved for them. A failure if a limit does not allow it."""
        held, record = _find_reservation(running), running.record
        if held is None:
            return None
        sent = await run_by_size(len(body), partial(estimate_input, codec, body))
        usage = replace(held.usage, input=sent.input, input_audio=sent.input_audio, input_image=sent.input_image)
        found = self._estimate_use(record, held.rules, held.provider, held.model, usage)
        refusal = found if type(found) is Refusal else await self._add(record, held, found)
        return refusal.failure if refusal is not None else None

    async def _add(self, record: ExchangeRecord, held: Reservation, estimate: Amounts) -> Refusal | None:
        """Reserve what the next call will probably use, as far as that, with what was used, is more than what is held
        already."""
        used = self._count_used(record, held)
        needed = {name: used[name] + estimate[name] - held.held[name] for name in used}
        rules = tuple(rule for rule in held.rules.rules if needed.get(rule.measure, 0) > 0)
        if not rules:
            return None
        charges = _make_charges(rules, needed)
        result = await self._reservations.reserve(charges)
        if type(result) is StoreDown:
            return self._refuse_unreachable(rules, result)
        id, reserved = result
        self._note_states(rules, charges, reserved)
        if reserved.refused:
            return self._refuse(rules, charges, reserved, estimate, record.started_at)
        held.additions += ((id, len(charges)),)
        held.held = {name: max(amount, held.held[name] + needed.get(name, 0)) for name, amount in held.held.items()}
        return None

    @staticmethod
    def is_reserved(running: RunningExchange, provider: Provider, model: str, size: int) -> bool:
        """Has the request, whose body has this size, reserved what it needs of this provider?"""
        held = _find_reservation(running)
        return (
            held is not None
            and held.provider is provider
            and held.model == model
            and held.holds(held.rules, provider, model, size)
        )

    def settle(self, record: ExchangeRecord, reservation: Reservation, requests: int) -> None:
        """Count what the exchange has used since its reservation."""
        rules = reservation.rules
        if rules.plain_charges and requests:
            self._reservations.settle(reservation.id, rules.plain_amounts)
            return
        used = {"requests": requests, "parallel_requests": 0, **self._count_used(record, reservation)}
        amounts = [min(used[rule.measure], MAX_COUNTED) for rule in rules.rules]
        self._reservations.settle(reservation.id, tuple(amounts))
        for id, charges in reservation.additions:
            self._reservations.settle(id, (0,) * charges)

    def _count_used(self, record: ExchangeRecord, reservation: Reservation) -> dict[str, int]:
        """What the calls since a reservation have used, by measure."""
        rules, used = reservation.rules, dict[str, int]()
        calls = record.costs.calls[reservation.first_call :]
        if rules.counts_tokens:
            used["tokens"] = sum(_count_call_tokens(call, reservation.estimate["tokens"]) for call in calls)
        if rules.counts_dollars:
            estimated, at = reservation.estimate["dollars"], record.started_at
            tier = reservation.usage.service_tier
            used["dollars"] = sum(self._count_call_cost(call, at, estimated, tier) for call in calls)
        return used

    def refuse_uncounted(
        self, record: ExchangeRecord, provider: Provider, model: str, uses_tokens: bool
    ) -> Failure | None:
        """A failure if a request that does not say what it costs could pass a limit. It may use any model if none is
        given."""
        client = record.client
        values = {"key": client.key_name, "team": client.team, "agent": client.agent, "provider": provider.name}
        if model:
            values["model"] = model.lower()
        fields = USE_FIELDS if uses_tokens else MONEY_FIELDS
        for limit in self._limits:
            counted = next((field for field in fields if getattr(limit, field) is not None), None)
            if counted is not None and not limit.soft and limit.selects(values):
                self._metrics.count(LIMIT_REFUSALS, limit.name, counted)
                what = f"the limit `{limit.name}` cannot be applied to this endpoint, which does not say what it uses"
                hint = "ask for single answers, or the operator for a key without limits in tokens and dollars"
                return Failure("permission", f"{what}; {hint}", 403)
        return None

    def find_price_rule(self, record: ExchangeRecord, provider: Provider, model: str) -> LimitRule | None:
        """The hard limit in dollars that refuses this request if its price is not known; None if there is none."""
        return self._rules_for(record, provider, model).price_rule if not provider.embedded else None

    def bounds_dollars(self, record: ExchangeRecord, provider: Provider, model: str) -> bool:
        """Is there a hard limit in dollars for this request?"""
        return self._rules_for(record, provider, model).bounds_dollars and not provider.embedded

    def refuse_tools(
        self, rule: LimitRule, record: ExchangeRecord, provider: Provider, model: str, tools: Iterable[HostedTool]
    ) -> Refusal | None:
        """A refusal if one of the tools that the provider runs costs money which this limit cannot count."""
        for tool in tools:
            finder = find_prices(provider, model, record.started_at, tool.service_tier)
            if not tool.is_counted(finder):
                self._metrics.count(LIMIT_REFUSALS, rule.limit.name, rule.field)
                return _refuse_tool(rule, f"{provider.name}/{model}", tool, finder)
        return None

    # --- which limits apply ---

    def _rules_for(self, record: ExchangeRecord, provider: Provider, model: str, counts_use: bool = True) -> RuleSet:
        client, is_inner = record.client, record.asked.operation in INNER_OPERATIONS
        names = (client.key_name, client.team, client.agent, provider.name, model)
        return self._find_rules(*names, is_inner, counts_use)

    def _build_rules(
        self, key: str, team: str, agent: str, provider: str, model: str, is_inner: bool, counts_use: bool
    ) -> RuleSet:
        values = {"key": key, "team": team, "agent": agent, "provider": provider, "model": model.lower()}
        rules: list[LimitRule] = []
        for limit in self._limits:
            if not limit.selects(values):
                continue
            group = ", ".join(values[name] for name in limit.per)
            chosen = {"provider", "model"}.intersection(limit.per)
            for field in AMOUNT_FIELDS:
                rule = self._build_rule(limit, field, group, bool(limit.provider or limit.model or chosen))
                if rule is None or (is_inner if rule.measure in _ONE_REQUEST else not counts_use):
                    continue
                if all(rule.counter != other.counter for other in rules):  # two limits may have one name
                    rules.append(rule)
        if len(self._rules_by_counters) >= _MAX_CACHED:
            self._rules_by_counters.clear()
        return self._rules_by_counters.setdefault(tuple(rule.counter for rule in rules), _make_rule_set(tuple(rules)))

    def _build_rule(self, limit: Limit, field: str, group: str, depends_on_target: bool) -> LimitRule | None:
        amount = getattr(limit, field)
        if amount is None:
            return None
        measure, unit = AMOUNTS[field]
        maximum = count_dollars(Decimal(str(amount))) if measure == "dollars" else int(amount)
        name = f"{limit.name}/{field}"
        if group:
            is_plain = len(group) <= _MAX_GROUP and group.isprintable()
            name += f"/{group if is_plain else hex_digest(group, 32)}"
        gauge = self._metrics.add_limit(limit.name, field, group, amount)
        hard = -1 if limit.soft else maximum
        find_used = None
        if self._read_used is not None and measure in LEDGER_NUMBERS and unit in LEDGER_UNITS:
            find_used = partial(_sum_used, self._read_used, limit, group, measure)
        return LimitRule(limit, field, measure, unit, name, group, maximum, depends_on_target, gauge, hard, find_used)

    # --- estimates and counts ---

    def _estimate_use(
        self, record: ExchangeRecord, rules: RuleSet, provider: Provider, model: str, usage: Usage
    ) -> Amounts | Refusal:
        tokens = usage.input + usage.output
        if not rules.counts_dollars:
            return {"requests": 1, "parallel_requests": 1, "tokens": tokens}
        # Rounded, so that the same small requests need not be priced again and again.
        usage = replace(usage, input=_round_up(usage.input), output=_round_up(usage.output))
        hour = record.started_at // PRICE_SECONDS * PRICE_SECONDS
        cost = self._estimate_cost(provider, model, usage, hour)
        if cost is None:
            closed = rules.price_rule
            if closed is not None:
                self._metrics.count(LIMIT_REFUSALS, closed.limit.name, closed.field)
                return _refuse_unpriced(closed, provider, model)
            self._note_unpriced(provider.name, model)
        return {"requests": 1, "parallel_requests": 1, "tokens": tokens, "dollars": cost or 0}

    def _count_call_cost(self, call: CallUsage, at: float, estimated: int, asked_tier: str) -> int:
        # A gateway that does not look up costs otherwise ([costs]) does it here; and a server that does not say how it
        # has served a call may have done what it was asked for.
        is_unsaid = asked_tier != "" and call.usage is not None and not call.usage.service_tier
        priced = self._price(call, call.usage, at, asked_tier) if call.cost is None or is_unsaid else call
        cost, reported = priced.cost, priced.reported_cost
        cost = cost if call.usage is None or is_possible(call.usage) else None
        if cost is None and call.usage is not None and not estimated:
            self._note_unpriced(call.provider, call.model)
        # If it is not known, nobody has said what was used, or it is so much that it cannot be.
        counted = estimated if cost is None else count_dollars(cost)
        # A server can have used another model or a tool: what it says itself that it takes counts if it is more.
        counted = counted if reported is None else max(counted, count_dollars(reported))
        if call.least is not None:
            counted = max(counted, count_dollars(self._price(call, call.least, at, asked_tier).cost))
        return counted

    def _price(self, call: CallUsage, usage: Usage | None, at: float, asked_tier: str) -> CallUsage:
        if asked_tier and usage is not None and not usage.service_tier:
            usage = replace(usage, service_tier=asked_tier)
        priced = CallUsage(call.provider, call.model, usage=usage)
        self._pricer.price_call(priced, at)
        return priced

    # --- refusals ---

    def _refuse(
        self,
        rules: Sequence[LimitRule],
        charges: Sequence[Charge],
        reserved: Reserved,
        estimate: Amounts,
        now: float,
    ) -> Refusal:
        """`estimate` is what the call needs in all; a part of that may be held already."""
        refused = [(rules[index], charges[index].amount, reserved.states[index]) for index in reserved.refused]
        for rule, _, _ in refused:
            self._metrics.count(LIMIT_REFUSALS, rule.limit.name, rule.field)
        # The client has to wait for the one that opens last.
        rule, amount, state = max(
            refused,
            key=lambda row: (estimate[row[0].measure] > row[0].maximum, _wait_seconds(row[0], row[2])),
        )
        message = _describe_refusal(rule, amount, estimate[rule.measure], state, now)
        wait = _wait_seconds(rule, state)
        failure = Failure("rate", message, 429, retry_after=wait)
        if estimate[rule.measure] > rule.maximum:  # it never fits, so there is nothing to wait for
            failure = Failure("invalid", message, 400)
        elif wait > MAX_WAIT:
            failure = Failure("quota", message, 429, retry_after=wait, opens_at=int(now + wait))
        return Refusal(
            failure,
            tuple(_rate_limit(rule, state) for rule, _, state in refused if rule.measure in ("requests", "tokens")),
            depends_on_target=all(rule.depends_on_target for rule, _, _ in refused),
        )

    def _refuse_unreachable(self, rules: Sequence[LimitRule], down: StoreDown) -> Refusal | None:
        closed = next((rule for rule in rules if rule.is_closed or (down.is_busy and not rule.limit.soft)), None)
        if closed is None:
            return None
        self._metrics.count(LIMIT_REFUSALS, closed.limit.name, closed.field)
        why = "its counters are busy" if down.is_busy else "its counters cannot be reached"
        what = f"the limit `{closed.limit.name}` cannot be checked, because {why}"
        failure = Failure("overloaded", f"{what}; try again in a moment", 503, retry_after=STORE_RETRY_AFTER)
        return Refusal(failure)

    # --- logs and metrics ---

    def _note_states(self, rules: Sequence[LimitRule], charges: Sequence[Charge], reserved: Reserved) -> None:
        gauges, ends, now = self._metrics.values, self._metrics.limit_ends, monotonic()
        for rule, charge, state in zip(rules, charges, reserved.states, strict=True):
            taken = state.taken + (0 if reserved.refused else charge.amount)
            gauges[rule.gauge] = taken / COUNTS_PER_DOLLAR if rule.measure == "dollars" else taken
            ends[rule.gauge] = now + (PARALLEL_SHOWN_SECONDS if rule.unit == "none" else state.opens_after)
            if taken > rule.maximum and rule.limit.soft:
                self._warn_soft(rule, taken, state)

    def _warn_soft(self, rule: LimitRule, taken: int, state: CounterState) -> None:
        self._metrics.count(LIMIT_WARNINGS, rule.limit.name, rule.field)
        now = monotonic()
        if now >= self._warned_until.get(rule.counter, 0.0):
            self._warned_until[rule.counter] = now + min(state.opens_after, MAX_QUIET_SECONDS)
            what = f"the soft limit {_describe_limit(rule)} is passed: {_describe_use(rule, taken)}"
            self._log_event(
                "limit_passed", level="warn", limit=rule.limit.name, amount=rule.field, group=rule.group, message=what
            )

    def _note_unpriced(self, provider: str, model: str) -> None:
        if (provider, model) in self._unpriced_models:
            return
        self._unpriced_models[provider, model] = True
        what = f"no price is known for `{provider}/{model}`, so limits in dollars do not count it"
        hint = 'add [models.NAME.facts.prices], or remove on_unknown_price = "open" from the limit'
        self._log_event("limit_unpriced", level="warn", provider=provider, model=model, message=what, hint=hint)


_ONE_REQUEST: Amounts = {"requests": 1, "parallel_requests": 1}


def _make_rule_set(rules: tuple[LimitRule, ...]) -> RuleSet:
    measures = {rule.measure for rule in rules}
    if measures <= _ONE_REQUEST.keys():
        amounts = tuple(int(rule.measure == "requests") for rule in rules)
        return RuleSet(rules, False, False, False, None, _make_charges(rules, _ONE_REQUEST), amounts)
    price_rule = next((rule for rule in rules if rule.needs_price), None)
    is_bound = any(rule.measure == "dollars" and not rule.limit.soft for rule in rules)
    return RuleSet(rules, "tokens" in measures, "dollars" in measures, True, price_rule, bounds_dollars=is_bound)


def _make_charges(rules: tuple[LimitRule, ...], amounts: Amounts) -> tuple[Charge, ...]:
    return tuple(
        [Charge(rule.counter, rule.unit, amounts[rule.measure], rule.hard_maximum, rule.find_used) for rule in rules]
    )


LEDGER_NUMBERS: Mapping[str, tuple[str, ...]] = {"tokens": ("input", "output"), "dollars": ("cost",)}
"""What of the ledger's sums each measure counts."""
LEDGER_UNITS = frozenset({"hour", "day", "month"})
"""The windows that begin with an hour, as the sums of the ledger do."""


async def _sum_used(
    read_used: ReadUsed, limit: Limit, group: str, measure: str, start: int, end: int
) -> int | StoreDown:
    """What the calls in the ledger have used of a limit, in the units of its counter. Calls of unknown usage are not in
    it."""
    sums = await read_used(SELECTORS, start, end)
    if isinstance(sums, StoreDown):
        return sums
    total = 0
    for one in sums:
        values = dict[str, str](zip(SELECTORS, map(str, one.group), strict=True))
        values["model"] = values["model"].lower()
        if limit.selects(values) and ", ".join(values[name] for name in limit.per) == group:
            total += sum(getattr(one, number) for number in LEDGER_NUMBERS[measure])
    return min(count_dollars(from_units(total)) if measure == "dollars" else total, MAX_COUNTED)


# --- amounts ---


def _round_up(tokens: int) -> int:
    return -(-tokens // TOKEN_STEP) * TOKEN_STEP


def _estimate_dollars(provider: Provider, model: str, usage: Usage, at: float) -> int | None:
    """In the units of the counters; None if no price is known."""
    if provider.embedded:
        return 0
    cost = estimate_cost(provider, model, usage, at)
    return None if cost is None else count_dollars(cost)


def count_dollars(amount: Decimal | None) -> int:
    """In the units of the counters, rounded up. What is not known is not counted."""
    return 0 if amount is None else math.ceil(amount * COUNTS_PER_DOLLAR)


def _count_call_tokens(call: CallUsage, estimated: int) -> int:
    usage, least = call.usage, call.least
    tokens = usage.input + usage.output if usage is not None and is_possible(usage) else estimated
    return max(tokens, 0 if least is None else least.input + least.output)


# --- texts ---


def _wait_seconds(rule: LimitRule, state: CounterState) -> float:
    return PARALLEL_RETRY_AFTER if rule.unit == "none" else math.ceil(max(1.0, state.opens_after))


def _file_amount(rule: LimitRule, amount: int) -> float:
    return amount / COUNTS_PER_DOLLAR if rule.measure == "dollars" else float(amount)


def _describe_limit(rule: LimitRule) -> str:
    of_group = f" for `{rule.group}`" if rule.group else ""
    return f"`{rule.limit.name}`{of_group}, {describe_amount(rule.field, _file_amount(rule, rule.maximum))},"


def _describe_use(rule: LimitRule, amount: int) -> str:
    if rule.measure == "dollars":
        return format_dollars(Decimal(amount) / COUNTS_PER_DOLLAR)
    return f"{amount:,} {rule.measure.replace('_', ' ')}"


def _describe_refusal(rule: LimitRule, amount: int, whole: int, state: CounterState, now: float) -> str:
    limit = _describe_limit(rule)
    if whole > rule.maximum:
        needs = _describe_use(rule, whole)
        return f"this request alone needs about {needs}, more than the limit {limit} allows; make it smaller"
    if rule.unit == "none":
        return f"the limit {limit} is reached; it opens when one of these requests ends"
    opens = write_timestamp(now + state.opens_after)
    used = _describe_use(rule, state.taken)
    has_room = rule.measure != "requests" and state.taken < rule.maximum
    more = f"; this request needs about {_describe_use(rule, amount)} more" if has_room else ""
    return f"the limit {limit} is reached: {used} are used or reserved{more}. It opens at {opens}"


def _rate_limit(rule: LimitRule, state: CounterState) -> RateLimit:
    return RateLimit(rule.measure, rule.maximum, max(0, rule.maximum - state.taken), state.opens_after)


def _refuse_unpriced(rule: LimitRule, provider: Provider, model: str) -> Refusal:
    what = f"no price is known for `{provider.name}/{model}`, and the limit `{rule.limit.name}` refuses such models"
    hint = "the operator of this gateway can add its prices ([models.NAME.facts.prices]), or set on_unknown_price"
    failure = Failure("permission", f"{what}; {hint}", 403)
    return Refusal(failure, depends_on_target=True)


def _refuse_tool(rule: LimitRule, model: str, tool: HostedTool, finder: PriceFinder | None) -> Refusal:
    hints: list[str] = []
    if tool.prices:
        what = f"what {'a search by ' * bool(tool.kind)}`{tool.name}` costs with `{model}` is not known"
        hints += [f"add the price of a `{name}` ([models.NAME.facts.prices])" for name in tool.prices]
    elif tool.service_tier:
        what = f"what `{tool.name}` costs with `{model}` is not known: the tier `{tool.service_tier}` has no price"
        if finder is not None and finder.source == FROM_FILE:
            hints.append("remove its [models.NAME.facts.prices], if the catalogue knows the tier")
    elif tool.is_unknown:
        what = f"what `{tool.name}` costs with `{model}` is not known: servers choose tools and models by such members"
    else:
        what = f"what `{tool.name}` costs at `{model.partition('/')[0]}` is not known, or not counted"
    hints += [f'drop the tool ([[policy]] with type = "{tool.kind}" and drop = true)'] if tool.kind else []
    hints.append(f'set on_unknown_price = "open" in the limit `{rule.limit.name}`')
    limit = f"the limit `{rule.limit.name}` in dollars refuses it"
    hint = f"send the request without it, or the operator of this gateway can {' or '.join(hints)}"
    return Refusal(Failure("permission", f"{what}, so {limit}; {hint}", 403))
