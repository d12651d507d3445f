"""Watches the prompt cache: what each turn of a session read from it, against what the unchanged prefix should have
given; and where a prefix broke.

Of each prompt only digests of its pieces are kept, and of all sessions only the last ones, so that the memory is
bounded. Short prompts are not looked at: no provider caches them.
"""

from __future__ import annotations

from array import array
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
    PromptShape,
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
"""Tokens of the shortest prompt that providers cache (OpenAI; Anthropic: 1,024 to 4,096)."""
MIN_BODY, MAX_BODY = 4096, 8 * 1024 * 1024
"""Bytes of the requests that are looked at."""
CACHE_SECONDS = 300.0
"""How long most providers keep a prefix after it was used."""
MAX_SESSIONS = 4096
MAX_PROMPTS = 6
"""Prompts of one session: those of sub-agents, and side requests."""
MAX_DIGESTS = 1_000_000
"""Pieces of all prompts that are kept, at 8 bytes each."""
MAX_LONG_TEXTS = 512
BLOCK = 64
"""Bytes of the blocks in which the long texts at the start of a prompt are compared."""
MAX_BLOCKS = 4096
MARGIN = 16
EXCERPT = BLOCK + 2 * MARGIN
"""Bytes of the prompt that a report shows: the block in which the difference is, and a margin around it."""


class _KnownPrompt(Struct, eq=False):
    """A prompt of which only digests are kept."""

    maker: tuple[str, str, str]
    """Provider, account and model."""
    shape: PromptShape
    digests: array[int]
    at: float
    """When it was sent, in seconds since 1970."""
    tokens: int | None
    """The provider's count of all its tokens; None if it is unknown."""

    @property
    def turns(self) -> array[int]:
        return self.digests[self.shape.first_turn :]


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
        self._digest_count = 0
        self._broken: list[tuple[ExchangeRecord, CacheReport]] = []
        self._blocks: OrderedDict[int, array[int]] = OrderedDict()
        """The blocks of long texts (instructions, first turns), by the digest of the text."""

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
        session = self._sessions.get(record.asked.session) or _Session()
        for one in sent:
            prompt = split_prompt(one.body, one.protocol)
            if prompt is None or not prompt.shape.turns:
                continue
            report = self._compare(session, self._digest(one, prompt, record.started_at), prompt, one)
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

    def _digest(self, sent: SentPrompt, prompt: Prompt, at: float) -> _KnownPrompt:
        forms = [*map(compared_form, prompt.pieces)]
        digests = array("q", map(hash, forms))
        for number in _long_texts(prompt.shape):
            self._keep_blocks(digests[number], forms[number])
        call = sent.call
        usage = None if call.is_estimated else call.usage
        tokens = usage.input if usage is not None else None
        return _KnownPrompt((call.provider, call.account, call.model), prompt.shape, digests, at, tokens)

    def _compare(self, session: _Session, new: _KnownPrompt, prompt: Prompt, sent: SentPrompt) -> CacheReport | None:
        """What the cache gave for a prompt; None if there is none to compare it with."""
        old = _find_continued(session.prompts, new)
        if old is not None and old.maker == new.maker:
            self._forget(session, old)
        elif len(session.prompts) >= MAX_PROMPTS:
            self._forget(session, session.prompts[0])
        session.prompts.append(new)
        self._digest_count += len(new.digests)
        usage = None if sent.call.is_estimated else sent.call.usage
        if old is None or usage is None or old.tokens is None or old.tokens < MIN_TOKENS:
            return None
        if usage.cache_read is None and usage.cache_write is None:
            return None  # the provider says nothing of a cache
        read = usage.cache_read or 0
        report = CacheReport(old.tokens, read, usage.cache_write or 0)
        found = self._find_break(old, new, prompt)
        if found is not None:
            report.cause, report.reason, report.place, report.excerpt = found
        elif read >= old.tokens / 2:
            return report
        else:
            is_old = new.at - old.at > CACHE_SECONDS
            report.cause = "expired" if is_old else "unknown"
        report.missed = max(0, old.tokens - read)
        report.cost = self._extra_cost(new, usage, report.missed)
        return report

    def _find_break(
        self, old: _KnownPrompt, new: _KnownPrompt, prompt: Prompt
    ) -> tuple[CacheCause, str, str, str] | None:
        """Cause, sentence, place and excerpt of the first difference; None if there is none."""
        other = describe_other_maker(old.maker, new.maker)
        if other is not None:
            return *other, "/model", ""
        number = first_difference(old.digests, new.digests)
        if number is None:
            return None
        is_there = number < len(new.digests)
        form = compared_form(prompt.pieces[number]) if is_there else b""
        at = max(0, self._find_block(old.digests[number], new.digests[number]) - MARGIN) if is_there else 0
        around = form[at : at + EXCERPT].decode("utf-8", "ignore")
        cause, reason = guess_cause(old.shape, new.shape, number, around)
        excerpt = _whole_words(around, is_cut_before=at > 0, is_cut_after=at + EXCERPT < len(form))
        place = new.shape.place(number) if is_there else old.shape.place(number)
        return cause, reason, place, excerpt

    def _extra_cost(self, new: _KnownPrompt, usage: Usage, missed: int) -> Decimal | None:
        """What the missed tokens cost more than if they had been read from the cache."""
        provider = self._providers.get(new.maker[0])
        paid = price_usage(provider, new.maker[2], usage, new.at) if provider is not None else None
        if provider is None or paid is None:
            return None
        written = max(0, usage.cache_write - missed) if usage.cache_write is not None else None
        cached = replace(usage, cache_read=(usage.cache_read or 0) + missed, cache_write=written, cache_write_1h=None)
        due = price_usage(provider, new.maker[2], cached, new.at)
        return max(Decimal(0), paid.total - due.total) if due is not None else None

    # --- what is kept ---

    def _keep_blocks(self, digest: int, form: bytes) -> None:
        if digest in self._blocks:
            self._blocks.move_to_end(digest)
            return
        cut = form[: BLOCK * MAX_BLOCKS]
        self._blocks[digest] = array("q", (hash(cut[at : at + BLOCK]) for at in range(0, len(cut), BLOCK)))
        if len(self._blocks) > MAX_LONG_TEXTS:
            self._blocks.popitem(last=False)

    def _find_block(self, old: int, new: int) -> int:
        """Where two texts begin to differ, to a block; 0 if that is not known."""
        before, after = self._blocks.get(old), self._blocks.get(new)
        if before is None or after is None:
            return 0
        number = first_difference(before, after)
        return BLOCK * (len(before) if number is None else number)

    def _forget(self, session: _Session, prompt: _KnownPrompt) -> None:
        session.prompts.remove(prompt)
        self._digest_count -= len(prompt.digests)

    def _drop_oldest(self) -> None:
        while len(self._sessions) > MAX_SESSIONS or (self._digest_count > MAX_DIGESTS and len(self._sessions) > 1):
            _, dropped = self._sessions.popitem(last=False)
            self._digest_count -= sum(len(prompt.digests) for prompt in dropped.prompts)


def _find_continued(prompts: Sequence[_KnownPrompt], new: _KnownPrompt) -> _KnownPrompt | None:
    """The prompt that a new one continues: one of the same model and account if there is one, because it is in their
    cache; the one with which it has the most in common, and of these the newest."""

    def rank(old: _KnownPrompt) -> tuple[bool, int]:
        different = first_difference(old.digests, new.digests)
        return old.maker == new.maker, len(old.digests) if different is None else different

    turns = new.turns
    earlier = [old for old in reversed(prompts) if is_continued(old.turns, turns)]
    return max(earlier, key=rank, default=None)


def _whole_words(text: str, is_cut_before: bool, is_cut_after: bool) -> str:
    """A part of a text without words that are cut: the log would not recognise half of a credential."""
    if is_cut_before:
        text = text.partition(" ")[2]
    return text.rpartition(" ")[0] if is_cut_after else text


def _long_texts(shape: PromptShape) -> range:
    """The pieces in which a time or an id is most often: the instructions, and the first two turns."""
    first = len(shape.tool_names)
    return range(first, shape.first_turn + min(2, shape.turns))


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
