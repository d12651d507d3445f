"""Sessions: which exchanges are turns of one conversation, and where the prefix that providers cache has broken.

Exchanges of one session belong together (`exchange/session.py`), and those that continue an answer which only the
provider has stored. A provider caches a prompt as a prefix, in the order tools, instructions, messages: the first
difference from the turn before ends what can be read from the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from hashlib import sha256

from msgspec import Struct

from toolwire.core import ids, ir
from toolwire.core.json_values import Malformed
from toolwire.gateway.exchange.client_body import read_client_body
from toolwire.gateway.features.cache_watch.cache_prefix import (
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
from toolwire.gateway.surfaces.console import api
from toolwire.gateway.surfaces.console.rows import add_costs, cache_usage, clean_texts, exchange_row, shorten_amount
from toolwire.gateway.telemetry.log import read_captured_response
from toolwire.gateway.telemetry.record import ExchangeCapture, ExchangeRecord
from toolwire.protocols import CODECS

MAX_TITLE = 80
CONTEXT = 120
"""Characters that are shown before a difference, and after it."""


class ExchangeFacts(Struct, frozen=True, kw_only=True):
    """What is needed to group an exchange. Workers send it to each other."""

    row: api.ExchangeRow
    title: str = ""
    response_id: str = ""
    previous_response_id: str = ""
    conversation: str = ""
    names_session: bool = False
    """Does a header of the agent name the session?"""
    session: str = ""
    account: str = ""
    cache: api.CacheUsage | None = None
    digests: Sequence[str] = ()
    """Of each message."""
    segments: Sequence[tuple[str, int]] = ()
    """The pieces of the request to the provider, in the order in which it is cached: a digest of each, and its size."""


class SessionGroup(Struct, frozen=True, kw_only=True):
    id: str
    source: api.SessionSource
    members: Sequence[ExchangeFacts]
    """The oldest first."""

    def has_id(self, id: str) -> bool:
        """Is this the id of the session, or of one of its exchanges?"""
        return id == self.id or any(one.row.id == id for one in self.members)


# --- grouping ---


def read_facts(record: ExchangeRecord, worker: int, clean: Callable[[str], str]) -> ExchangeFacts:
    """What an exchange says about its session."""
    row = exchange_row(record, worker)
    codec, capture = CODECS.get(record.client.protocol), record.traffic.capture
    if codec is None or capture is None:
        return ExchangeFacts(row=row)
    body = read_client_body(codec, capture.client_request)
    if isinstance(body, ir.Failure):
        return ExchangeFacts(row=row)
    try:
        request = body.read_request()
    except Malformed:
        return ExchangeFacts(row=row)
    peek = body.peek
    response = read_captured_response(codec, capture.client_response.data) if record.ended else None
    return ExchangeFacts(
        row=row,
        title=clean(find_title(request)),
        response_id=response.id if response is not None else "",
        previous_response_id=peek.continues if peek.continues != peek.conversation else "",
        conversation=peek.conversation,
        names_session=capture.names_session,
        session=record.asked.session,
        account=record.upstream.account,
        cache=clean_texts(cache_usage(record.cache), clean),
        digests=digest_turns(request.turns),
        segments=_digest_pieces(capture),
    )


def _digest_pieces(capture: ExchangeCapture) -> list[tuple[str, int]]:
    """The pieces of the last request to a provider."""
    calls = capture.upstream_calls
    prompt = split_prompt(calls[-1].body, calls[-1].protocol) if calls else None
    return [(sha256(compared_form(piece)).hexdigest()[:16], len(piece)) for piece in prompt.pieces] if prompt else []


def find_title(request: ir.Request) -> str:
    """The start of the user's first message."""
    texts = (
        part.text for turn in request.turns if turn.role == "user" for part in turn.parts if isinstance(part, ir.Text)
    )
    shown = (text for text in texts if not text.lstrip().startswith("<"))  # agents put their environment there
    return " ".join(next(shown, "").split())[:MAX_TITLE]


def digest_turns(turns: Sequence[ir.Turn]) -> list[str]:
    """A digest of each turn. Cache marks and reasoning are left out: clients change and drop them."""
    return [ids.hex_digest("\0".join((turn.role, *map(_part_identity, turn.parts))), 24) for turn in turns]


def _part_identity(part: ir.Part) -> str:
    match part:
        case ir.Text():
            return f"text {part.text}"
        case ir.Call():
            return f"call {part.id} {part.name} {part.arguments}"
        case ir.Result():
            return f"result {part.id} {' '.join(map(_part_identity, part.content))}"
        case ir.Media():
            return f"media {len(part.data)} {part.data[:64]}"
    return "" if isinstance(part, ir.Reasoning) else type(part).__name__


def group_sessions(facts: Sequence[ExchangeFacts]) -> list[SessionGroup]:
    """The sessions of all exchanges that call a model, the one with the newest turn first."""
    groups: dict[str, tuple[api.SessionSource, list[ExchangeFacts]]] = {}
    by_response: dict[str, str] = {}
    by_start: dict[str, list[str]] = {}
    for one in sorted(facts, key=lambda one: one.row.started_at):
        if not one.digests and not one.previous_response_id:
            continue
        # Of an answer that only the provider has stored, no more is known than its id.
        id = by_response.get(one.previous_response_id, one.session)
        source = _session_source(one)
        if source == "prefix":
            same_start = by_start.setdefault(one.session, [])
            last = {id: groups[id][1][-1] for id in same_start[-MAX_SAME_START:]}
            continued = [id for id, before in last.items() if _continues(one, before)]
            if continued:
                id = max(continued, key=lambda id: count_same(last[id], one))
            else:  # an independent request that begins with the same question
                id = one.row.id if same_start else one.session
                same_start.append(id)
        groups.setdefault(id, (source, []))[1].append(one)
        if one.response_id:
            by_response[one.response_id] = id
    found = [SessionGroup(id=id, source=source, members=members) for id, (source, members) in groups.items()]
    return sorted(found, key=lambda group: -group.members[-1].row.started_at)


def _session_source(one: ExchangeFacts) -> api.SessionSource:
    if one.names_session:
        return "header"
    if one.previous_response_id:
        return "previous_response_id"
    return "conversation" if one.conversation else "prefix"


def session_row(group: SessionGroup) -> api.SessionRow:
    rows = [one.row for one in group.members]
    titles = (one.title for one in group.members if one.title)
    return api.SessionRow(
        id=group.id,
        title=next(titles, ""),
        source=group.source,
        agent=rows[0].agent,
        models=list(dict.fromkeys(row.model or row.requested_model for row in rows)),
        turns=len(rows),
        started_at=rows[0].started_at,
        last_at=rows[-1].started_at,
        tokens=add_tokens([row.tokens for row in rows if row.tokens is not None]),
        cost=add_costs([row.cost for row in rows if row.cost is not None]),
        extra_cost_usd=add_extra_costs([one.cache for one in group.members if one.cache is not None]),
        broken_prefixes=sum(before is not None and is_broken(before, one) for before, one in pair_turns(group.members)),
    )


def add_tokens(counts: Sequence[api.Tokens]) -> api.Tokens:
    def total(name: str) -> int | None:
        known = [value for one in counts if (value := getattr(one, name)) is not None]
        return sum(known) if known else None

    names = ("input", "output", "cache_read", "cache_write", "reasoning", "cache_expected", "cache_missed")
    return api.Tokens(**{name: total(name) for name in names}, is_estimated=any(one.is_estimated for one in counts))


def add_extra_costs(reports: Sequence[api.CacheUsage]) -> Decimal | None:
    """What all missed tokens cost more; None if that is unknown of some."""
    costs = [report.extra_cost_usd for report in reports]
    return None if None in costs else shorten_amount(add_known([Decimal(0), *costs]))


# --- the cached prefix ---


MAX_COMPARED = 8
"""Earlier turns that a turn is compared with: an agent also sends side requests in its session."""
MAX_SAME_START = 100
"""Conversations with the same first question among which the one that a request continues is looked for."""


def pair_turns(members: Sequence[ExchangeFacts]) -> list[tuple[ExchangeFacts | None, ExchangeFacts]]:
    """Each turn with the turn that it continues: of the last ones, the one with which it has the most in common."""
    pairs: list[tuple[ExchangeFacts | None, ExchangeFacts]] = []
    for number, one in enumerate(members):
        earlier = [
            before
            for before in members[max(0, number - MAX_COMPARED) : number]
            if one.segments and before.segments and _continues(one, before)
        ]
        best = max(earlier, key=lambda before: (count_same(before, one), before.row.started_at), default=None)
        pairs.append((best, one))
    return pairs


def count_same(before: ExchangeFacts, one: ExchangeFacts) -> int:
    """The size of the pieces at the start that are the same."""
    different = first_difference(before.segments, one.segments)
    return sum(size for _, size in before.segments[:different])


def is_broken(before: ExchangeFacts, one: ExchangeFacts) -> bool:
    """Is the request before not the start of this one, or does another model have to read it?"""
    is_other = describe_other_maker(_maker(before), _maker(one)) is not None
    return is_other or first_difference(before.segments, one.segments) is not None


def _maker(one: ExchangeFacts) -> tuple[str, str, str]:
    return one.row.provider, one.account, one.row.model


def describe_turns(group: SessionGroup, bodies: Sequence[bytes], clean: Callable[[str], str]) -> list[api.SessionTurn]:
    """Each turn with where its prefix broke. `bodies` are the requests to the providers, b"" for unknown ones."""
    body_of = {one.row.id: body for one, body in zip(group.members, bodies, strict=True)}
    turns: list[api.SessionTurn] = []
    for before, one in pair_turns(group.members):
        found = None
        if before is not None and is_broken(before, one):
            prompts = [split_prompt(body_of[side.row.id], side.row.provider_protocol) for side in (before, one)]
            found = find_break((before, prompts[0]), (one, prompts[1]), clean)
        prefix_bytes = sum(size for _, size in before.segments) if before is not None else 0
        turns.append(api.SessionTurn(exchange=one.row, prefix_bytes=prefix_bytes, prefix_break=found, cache=one.cache))
    return turns


def _continues(one: ExchangeFacts, before: ExchangeFacts) -> bool:
    """Is this the next turn of the same conversation, and not a side request?"""
    if one.previous_response_id:
        return one.previous_response_id == before.response_id
    return is_continued(before.digests, one.digests)


def find_break(
    before: tuple[ExchangeFacts, Prompt | None], after: tuple[ExchangeFacts, Prompt | None], clean: Callable[[str], str]
) -> api.PrefixBreak | None:
    """The first difference from the turn before; None if that is a prefix of this one."""
    other = describe_other_maker(_maker(before[0]), _maker(after[0]))
    if other is not None:
        return api.PrefixBreak(place="/model", same_bytes=0, before="", after="", difference=0, cause=other[1])
    if before[1] is None or after[1] is None:
        return None
    old_pieces, new_pieces = before[1].pieces, after[1].pieces
    number = first_difference([*map(compared_form, old_pieces)], [*map(compared_form, new_pieces)])
    if number is None:
        return None
    old = old_pieces[number].decode("utf-8", "replace")
    new = new_pieces[number].decode("utf-8", "replace") if number < len(new_pieces) else ""
    at = common_length(old, new)
    # Whole pieces are cleaned: half of a credential would not be recognised.
    shown_old, shown_new = clean(old), clean(new)
    shown_at = common_length(shown_old, shown_new) if shown_old != shown_new else min(at, len(shown_old))
    start, end = max(0, shown_at - CONTEXT), shown_at + CONTEXT
    shapes = before[1].shape, after[1].shape
    return api.PrefixBreak(
        place=shapes[1].place(number) if number < len(new_pieces) else shapes[0].place(number),
        same_bytes=sum(map(len, old_pieces[:number])) + at,
        before=shown_old[start:end],
        after=shown_new[start:end],
        difference=shown_at - start,
        cause=guess_cause(*shapes, number, new[max(0, at - 12) : at + 24])[1],
    )
