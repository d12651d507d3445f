"""Watches the prompt cache: what each turn of a session read from it, against what the unchanged prefix should have
given; and where a prefix broke.

The last prompts of the last sessions stay in memory, as they were sent, up to a number of bytes. They are read and
compared only if the provider has read less from its cache than the turn before makes possible. Short prompts are not
looked at: no provider caches them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import final

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING, Usage
from toolwire.gateway.features.cache_watch.cache_prefix import (
    CacheCause,
    Prompt,
    common_length,
    compared_form,
    describe_other_maker,
    first_difference,
    guess_cause,
    is_continued,
    split_prompt,
)
from toolwire.gateway.models.amounts import add_known
from toolwire.gateway.models.prices import price_usage
from toolwire.gateway.settings.config import Provider
from toolwire.gateway.telemetry.record import CacheReport, CallUsage, ExchangeRecord
from toolwire.gateway.telemetry.running import RunningExchange

MIN_TOKENS = 1024
"""Tokens of the shortest prompt that providers cache (OpenAI; Anthropic: 1,024 to 4,096; their guides on prompt
caching, copies of 2026)."""
MIN_BODY, MAX_BODY = 4096, 8 * 1024 * 1024
"""Bytes of the requests that are looked at."""
CACHE_SECONDS = 300.0
"""How long most providers keep a prefix after it was used."""
MAX_SESSIONS = 4096
MAX_PROMPTS = 6
"""Prompts of one session: those of sub-agents, and side requests."""
MAX_BYTES = 32 * 1024 * 1024
"""Bytes of all prompts that are kept."""
MAX_COMPARED, TURN_BYTES = 16 * 1024 * 1024, 512
"""Bytes of prompts that are taken to pieces for one exchange, of which each turn counts as so many: the event loop
waits for that. With a new prompt the newest ones before it are compared."""
EXPECTED_SHARE = 0.9
"""A provider that reads this part of the prompt before, or more, has found the same prefix: they cache in blocks."""
MARGIN = 48
EXCERPT = 2 * MARGIN
"""Characters of the prompt that a report shows: some before and behind the place where the difference begins."""


class _Work(Struct, eq=False):
    """How much may still be done for one exchange."""

    left: int = MAX_COMPARED


class _KnownPrompt(Struct, eq=False):
    maker: tuple[str, str, str]
    """Provider, account and model."""
    protocol: str
    body: bytes
    at: float
    """When it was sent, in seconds since 1970."""
    tokens: int
    """The provider's count of all its tokens."""

    def split(self, work: _Work) -> Prompt | None:
        """None also if that is too much work for this exchange."""
        if work.left < len(self.body):
            return None
        prompt = split_prompt(self.body, self.protocol)
        work.left -= len(self.body) + TURN_BYTES * (len(prompt.pieces) if prompt is not None else 0)
        return prompt


class _Session(Struct, eq=False):
    prompts: list[_KnownPrompt] = []
    """The newest last."""
    was_warned: bool = False


class SentPrompt(Struct, frozen=True, eq=False):
    """A request to a provider that was answered."""

    call: CallUsage
    protocol: str
    body: bytes


@final
class SentPrompts(Struct, frozen=True, eq=False):
    """The requests of one exchange, until it ends."""

    watch: CacheWatch
    prompts: list[SentPrompt] = []

    def end(self, record: ExchangeRecord) -> None:
        self.watch.note_exchange(record, self.prompts)


class CacheWatch:
    """The sessions of one process. Call `configure` before use."""

    def __init__(self) -> None:
        self._providers: Mapping[str, Provider] = EMPTY_MAPPING
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self.kept_bytes = 0
        self._broken: list[tuple[ExchangeRecord, CacheReport]] = []

    def configure(self, providers: Mapping[str, Provider]) -> None:
        self._providers = providers

    def keep_prompt(self, running: RunningExchange, protocol: str, body: bytes) -> None:
        """Keep the request of the call that runs, until the exchange ends."""
        call = running.open_call
        if call is None or not MIN_BODY <= len(body) <= MAX_BODY or not running.record.asked.session:
            return
        prompt = SentPrompt(call, protocol, body)
        kept = next((one for one in running.holdings if type(one) is SentPrompts), None)
        if kept is None:
            running.holdings += (SentPrompts(self, [prompt]),)
        else:
            kept.prompts.append(prompt)

    def note_exchange(self, record: ExchangeRecord, sent: Sequence[SentPrompt]) -> None:
        """Compare the prompts of an exchange that has ended with those before, and set its report."""
        session, work = self._sessions.get(record.asked.session) or _Session(), _Work()
        for one in sent:
            report = self._compare(session, one, record.started_at, work)
            if report is not None:
                record.cache = report if record.cache is None else _join_reports(record.cache, report)
        if not session.prompts:
            return
        self._sessions[record.asked.session] = session
        self._sessions.move_to_end(record.asked.session)
        self._drop_oldest()
        if record.cache is not None and record.cache.place and not session.was_warned:
            session.was_warned = True
            self._broken.append((record, record.cache))

    def take_broken(self) -> list[tuple[ExchangeRecord, CacheReport]]:
        """The broken prefixes to warn of: one for a session."""
        broken, self._broken = self._broken, []
        return broken

    def _compare(self, session: _Session, sent: SentPrompt, at: float, work: _Work) -> CacheReport | None:
        """What the cache gave for a prompt; None if there is none to compare it with."""
        call = sent.call
        usage = None if call.is_estimated else call.usage
        if usage is None or (usage.cache_read is None and usage.cache_write is None):
            return None  # the provider says nothing of a cache
        new = _KnownPrompt((call.provider, call.account, call.model), sent.protocol, sent.body, at, usage.input)
        read = usage.cache_read or 0
        cached = _find_cached(session.prompts, new, read)
        if cached is not None:
            self._keep(session, new, cached)
            return CacheReport(cached.tokens, read, usage.cache_write or 0) if cached.tokens >= MIN_TOKENS else None
        found = _find_continued(session.prompts, new, work)
        if found is None:
            self._keep(session, new)
            return None
        old, before, after = found
        self._keep(session, new, old if old.maker == new.maker else None)
        if old.tokens < MIN_TOKENS:
            return None
        report = CacheReport(old.tokens, read, usage.cache_write or 0)
        broken = _find_break(old, new, before, after)
        if broken is not None:
            report.cause, report.reason, report.place, report.excerpt = broken
        elif read >= old.tokens / 2:
            return report
        else:
            report.cause = "expired" if new.at - old.at > CACHE_SECONDS else "unknown"
        report.missed = max(0, old.tokens - read)
        report.cost = self._extra_cost(new, usage, report.missed)
        return report

    def _extra_cost(self, new: _KnownPrompt, usage: Usage, missed: int) -> Decimal | None:
        """What the missed tokens cost more than if they had been read from the cache."""
        provider = self._providers.get(new.maker[0])
        paid = price_usage(provider, new.maker[2], usage, new.at) if provider is not None else None
        if provider is None or paid is None:
            return None
        written = max(0, usage.cache_write - missed) if usage.cache_write is not None else None
        cached = replace(usage, cache_read=(usage.cache_read or 0) + missed, cache_write=written, cache_write_1h=None)
        due = price_usage(provider, new.maker[2], cached, new.at)
        return max(Decimal(0), paid - due) if due is not None else None

    # --- what is kept ---

    def _keep(self, session: _Session, new: _KnownPrompt, replaced: _KnownPrompt | None = None) -> None:
        """Keep a prompt, in place of the one that it continues."""
        if replaced is None and len(session.prompts) >= MAX_PROMPTS:
            replaced = session.prompts[0]
        if replaced is not None:
            session.prompts.remove(replaced)
            self.kept_bytes -= len(replaced.body)
        session.prompts.append(new)
        self.kept_bytes += len(new.body)

    def _drop_oldest(self) -> None:
        while len(self._sessions) > MAX_SESSIONS or (self.kept_bytes > MAX_BYTES and len(self._sessions) > 1):
            _, dropped = self._sessions.popitem(last=False)
            self.kept_bytes -= sum(len(prompt.body) for prompt in dropped.prompts)


def _find_cached(prompts: Sequence[_KnownPrompt], new: _KnownPrompt, read: int) -> _KnownPrompt | None:
    """The prompt before this one, if the provider has found it in its cache: the longest one that it can continue."""
    known = [old for old in prompts if old.maker == new.maker and old.tokens <= new.tokens] if read else ()
    old = max(known, key=lambda one: one.tokens, default=None)
    return old if old is not None and read >= EXPECTED_SHARE * old.tokens else None


def _find_continued(
    prompts: Sequence[_KnownPrompt], new: _KnownPrompt, work: _Work
) -> tuple[_KnownPrompt, Prompt, Prompt] | None:
    """The prompt that a new one continues, and both in pieces: one of the same model and account if there is one,
    because it is in their cache; the one with which it has the most in common, and of these the newest."""
    after = new.split(work) if prompts else None
    if after is None or not after.shape.turns:
        return None
    forms = [*map(compared_form, after.pieces)]
    best: tuple[tuple[bool, int], _KnownPrompt, Prompt] | None = None
    for old in reversed(prompts):
        before = old.split(work)
        if before is None:
            continue
        old_forms = [*map(compared_form, before.pieces)]
        if not is_continued(old_forms[before.shape.first_turn :], forms[after.shape.first_turn :]):
            continue
        different = first_difference(old_forms, forms)
        rank = old.maker == new.maker, len(old_forms) if different is None else different
        if best is None or rank > best[0]:
            best = rank, old, before
    return None if best is None else (best[1], best[2], after)


def _find_break(
    old: _KnownPrompt, new: _KnownPrompt, before: Prompt, after: Prompt
) -> tuple[CacheCause, str, str, str] | None:
    """Cause, sentence, place and excerpt of the first difference; None if there is none."""
    other = describe_other_maker(old.maker, new.maker)
    if other is not None:
        return *other, "/model", ""
    forms = [*map(compared_form, after.pieces)]
    number = first_difference([*map(compared_form, before.pieces)], forms)
    if number is None:
        return None
    is_there = number < len(forms)
    text = forms[number].decode("utf-8", "ignore") if is_there else ""
    earlier = compared_form(before.pieces[number]).decode("utf-8", "ignore")
    at = max(0, common_length(earlier, text) - MARGIN)
    around = text[at : at + EXCERPT]
    cause, reason = guess_cause(before.shape, after.shape, number, around)
    excerpt = _whole_words(around, is_cut_before=at > 0, is_cut_after=at + EXCERPT < len(text))
    place = after.shape.place(number) if is_there else before.shape.place(number)
    return cause, reason, place, excerpt


def _whole_words(text: str, is_cut_before: bool, is_cut_after: bool) -> str:
    """A part of a text without words that are cut: the log would not recognise half of a credential."""
    if is_cut_before:
        text = text.partition(" ")[2]
    return text.rpartition(" ")[0] if is_cut_after else text


def _join_reports(first: CacheReport, second: CacheReport) -> CacheReport:
    """The report of several rounds of one answer. The first break counts."""
    broken = first if first.place or not second.place else second
    is_cost_known = all(one.cost is not None for one in (first, second) if one.missed)
    return CacheReport(
        expected=first.expected + second.expected,
        read=first.read + second.read,
        written=first.written + second.written,
        missed=first.missed + second.missed,
        cause=broken.cause,
        reason=broken.reason,
        place=broken.place,
        excerpt=broken.excerpt,
        cost=add_known([first.cost, second.cost]) if is_cost_known else None,
    )
