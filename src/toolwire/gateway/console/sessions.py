"""Sessions: which exchanges are turns of one conversation, and where the prefix that providers cache has broken.

Exchanges of one session belong together (`pipeline/session.py`), and those that continue an answer which only the
provider has stored. A provider caches a prompt as a prefix, in the order tools, instructions, messages: the first
difference from the turn before ends what can be read from the cache.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from toolwire.core import ids, ir
from toolwire.core.json_values import Json, Malformed, decode, encode, expect_object, json_pointer
from toolwire.gateway.console.api import (
    ExchangeRow,
    PrefixBreak,
    SessionRow,
    SessionSource,
    SessionTurn,
    Tokens,
)
from toolwire.gateway.console.rows import exchange_row
from toolwire.gateway.telemetry.log import read_captured_response
from toolwire.gateway.telemetry.record import ExchangeCapture, ExchangeRecord
from toolwire.protocols import CODECS

MAX_TITLE = 80
CONTEXT = 120
"""Characters that are shown before a difference, and after it."""


class ExchangeFacts(Struct, frozen=True, kw_only=True):
    """What is needed to group an exchange. Workers send it to each other."""

    row: ExchangeRow
    title: str = ""
    response_id: str = ""
    previous_response_id: str = ""
    conversation: str = ""
    names_session: bool = False
    """Does a header of the agent name the session?"""
    session: str = ""
    digests: Sequence[str] = ()
    """Of the messages up to each one: a session that goes on begins with the digests of the turn before."""
    segments: Sequence[tuple[str, int]] = ()
    """The pieces of the request to the provider, in the order in which it is cached: a digest of each, and its size."""


class SessionGroup(Struct, frozen=True, kw_only=True):
    id: str
    source: SessionSource
    members: Sequence[ExchangeFacts]
    """The oldest first."""

    def has_id(self, id: str) -> bool:
        """Is this the id of the session, or of one of its exchanges?"""
        return id == self.id or any(one.row.id == id for one in self.members)


# --- grouping ---


def read_facts(record: ExchangeRecord, worker: int, clean: Callable[[str], str]) -> ExchangeFacts:
    """What an exchange says about its session."""
    row = exchange_row(record, worker)
    codec, capture = CODECS.get(record.client_protocol), record.capture
    if codec is None or capture is None:
        return ExchangeFacts(row=row)
    try:
        body = expect_object(decode(capture.client_request), None)
        request = codec.read_request(body)
    except (Malformed, RecursionError):
        return ExchangeFacts(row=row)
    response = read_captured_response(codec, capture.client_response.data) if record.ended else None
    previous = body.get("previous_response_id")
    return ExchangeFacts(
        row=row,
        title=clean(find_title(request)),
        response_id=response.id if response is not None else "",
        previous_response_id=previous if isinstance(previous, str) else "",
        conversation=_conversation_id(body),
        names_session=capture.names_session,
        session=record.session,
        digests=digest_turns(request.turns),
        segments=[(ids.hex_digest(segment.text, 16), len(segment.text)) for segment in _sent_segments(capture)],
    )


def _sent_segments(capture: ExchangeCapture) -> list[Segment]:
    """The pieces of the last request to a provider."""
    calls = capture.upstream_calls
    return list_segments(calls[-1].body, calls[-1].protocol) if calls else []


def _conversation_id(body: Json) -> str:
    """The conversation that a Responses request names, as an id or as an object with one."""
    found = body.get("conversation")
    found = found.get("id") if isinstance(found, dict) else found
    return found if isinstance(found, str) else ""


def find_title(request: ir.Request) -> str:
    """The start of the user's first message."""
    texts = (
        part.text for turn in request.turns if turn.role == "user" for part in turn.parts if isinstance(part, ir.Text)
    )
    shown = (text for text in texts if not text.lstrip().startswith("<"))  # agents put their environment there
    return " ".join(next(shown, "").split())[:MAX_TITLE]


def digest_turns(turns: Sequence[ir.Turn]) -> list[str]:
    """A digest of the turns up to each one. Cache marks and reasoning are left out: clients change and drop them."""
    digests: list[str] = []
    last = ""
    for turn in turns:
        last = ids.hex_digest("\0".join((last, turn.role, *map(_part_identity, turn.parts))), 24)
        digests.append(last)
    return digests


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
    groups: dict[str, tuple[SessionSource, list[ExchangeFacts]]] = {}
    by_response: dict[str, str] = {}
    for one in sorted(facts, key=lambda one: one.row.started_at):
        if not one.digests and not one.previous_response_id:
            continue
        # Of an answer that only the provider has stored, no more is known than its id.
        id = by_response.get(one.previous_response_id, one.session)
        source = _session_source(one)
        groups.setdefault(id, (source, []))[1].append(one)
        if one.response_id:
            by_response[one.response_id] = id
    found = [SessionGroup(id=id, source=source, members=members) for id, (source, members) in groups.items()]
    return sorted(found, key=lambda group: -group.members[-1].row.started_at)


def _session_source(one: ExchangeFacts) -> SessionSource:
    if one.names_session:
        return "header"
    if one.previous_response_id:
        return "previous_response_id"
    return "conversation" if one.conversation else "prefix"


def session_row(group: SessionGroup) -> SessionRow:
    rows = [one.row for one in group.members]
    titles = (one.title for one in group.members if one.title)
    return SessionRow(
        id=group.id,
        title=next(titles, ""),
        source=group.source,
        agent=rows[0].agent,
        models=list(dict.fromkeys(row.model or row.requested_model for row in rows)),
        turns=len(rows),
        started_at=rows[0].started_at,
        last_at=rows[-1].started_at,
        tokens=add_tokens([row.tokens for row in rows if row.tokens is not None]),
        broken_prefixes=sum(before is not None and is_broken(before, one) for before, one in pair_turns(group.members)),
    )


def add_tokens(counts: Sequence[Tokens]) -> Tokens:
    def total(name: str) -> int | None:
        known = [value for one in counts if (value := getattr(one, name)) is not None]
        return sum(known) if known else None

    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    return Tokens(**{name: total(name) for name in names}, is_estimated=any(one.is_estimated for one in counts))


# --- the cached prefix ---


class Segment(Struct, frozen=True):
    """A piece of a request to a provider, in the order in which it is cached."""

    place: str
    text: str
    label: str = ""
    """The name of a tool."""


CACHE_MARKS = frozenset({"cache_control"})
"""Anthropic's marks of what to cache. Agents move them with every turn; the cache itself does not depend on them."""
MAX_COMPARED = 8
"""Earlier turns that a turn is compared with: an agent also sends side requests in its session."""
_CHANGING_TEXT = re.compile(r"\d{1,4}[-:./]\d{1,2}|\d{10,13}|[0-9a-f]{8}-[0-9a-f]{4}|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)")


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
    same = 0
    for old, new in zip(before.segments, one.segments, strict=False):
        if old != new:
            break
        same += new[1]
    return same


def is_broken(before: ExchangeFacts, one: ExchangeFacts) -> bool:
    """Is the request before not the start of this one, or does another model have to read it?"""
    is_other = (before.row.provider, before.row.model) != (one.row.provider, one.row.model)
    return is_other or list(one.segments[: len(before.segments)]) != list(before.segments)


def describe_turns(group: SessionGroup, bodies: Sequence[bytes], clean: Callable[[str], str]) -> list[SessionTurn]:
    """Each turn with where its prefix broke. `bodies` are the requests to the providers, b"" for unknown ones."""
    body_of = {one.row.id: body for one, body in zip(group.members, bodies, strict=True)}
    turns: list[SessionTurn] = []
    for before, one in pair_turns(group.members):
        found = None
        if before is not None and is_broken(before, one):
            sides = [(side, list_segments(body_of[side.row.id], side.row.provider_protocol)) for side in (before, one)]
            found = find_break(sides[0], sides[1], clean)
        prefix_bytes = sum(size for _, size in before.segments) if before is not None else 0
        turns.append(SessionTurn(exchange=one.row, prefix_bytes=prefix_bytes, prefix_break=found))
    return turns


def _continues(one: ExchangeFacts, before: ExchangeFacts) -> bool:
    """Is this the next turn of the same conversation, and not a side request? They share the first message."""
    if one.previous_response_id:
        return one.previous_response_id == before.response_id
    is_longer = len(one.digests) >= len(before.digests)
    return bool(one.digests and before.digests) and one.digests[0] == before.digests[0] and is_longer


def list_segments(body: bytes, protocol: str) -> list[Segment]:
    """The pieces of a request in the order tools, instructions, messages; none if it cannot be read."""
    codec = CODECS.get(protocol)
    try:
        json = expect_object(decode(body), None) if body and codec is not None else None
        if json is None or codec is None:
            return []
        request = codec.read_request(json)
    except (Malformed, RecursionError):
        return []
    turns = json.get(codec.constraints.turns_key)
    segments = [*_tool_segments(request, json)]
    system_keys = dict.fromkeys(_first_step(ir.source_path(part)) for part in request.system)
    segments += [_segment(f"/{key}", json[key]) for key in system_keys if key in json]
    if isinstance(turns, list):
        key = codec.constraints.turns_key
        segments += [_segment(f"/{key}/{number}", turn) for number, turn in enumerate(turns)]
    return segments


def _tool_segments(request: ir.Request, json: Json) -> Iterator[Segment]:
    tools = json.get("tools")
    names = {json_pointer(ir.source_path(tool)): tool.name for tool in request.tools if isinstance(tool, ir.Tool)}
    for number, tool in enumerate(tools if isinstance(tools, list) else ()):
        place = f"/tools/{number}"
        yield _segment(place, tool, names.get(place, ""))


def _first_step(path: Json) -> str:
    step = ""
    while path is not None:
        path, step = path
    return str(step)


def _segment(place: str, json: Json, label: str = "") -> Segment:
    return Segment(place, encode(_without_marks(json)).decode("utf-8", "replace"), label)


def _without_marks(json: Json) -> Json:
    if isinstance(json, dict):
        return {key: _without_marks(value) for key, value in json.items() if key not in CACHE_MARKS}
    return [_without_marks(item) for item in json] if isinstance(json, list) else json


def count_same_bytes(before: Sequence[Segment], after: Sequence[Segment]) -> int:
    """Characters at the start that are the same."""
    same = 0
    for old, new in zip(before, after, strict=False):
        if old.text != new.text:
            return same + _common_length(old.text, new.text)
        same += len(old.text)
    return same


def _common_length(left: str, right: str) -> int:
    low, high = 0, min(len(left), len(right))
    while low < high:  # the longest common start, by halving
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[:middle] == right[:middle] else (low, middle - 1)
    return low


def find_break(
    before: tuple[ExchangeFacts, Sequence[Segment]],
    after: tuple[ExchangeFacts, Sequence[Segment]],
    clean: Callable[[str], str],
) -> PrefixBreak | None:
    """The first difference from the turn before; None if that is a prefix of this one."""
    old_row, new_row = before[0].row, after[0].row
    if (old_row.provider, old_row.model) != (new_row.provider, new_row.model):
        cause = f"another model answers this turn ({new_row.provider}/{new_row.model}): it has a cache of its own"
        return PrefixBreak(place="/model", same_bytes=0, before="", after="", difference=0, cause=cause)
    nothing = Segment("", "")
    for number, old in enumerate(before[1]):
        new = after[1][number] if number < len(after[1]) else nothing
        if old.text == new.text:
            continue
        at = _common_length(old.text, new.text)
        start = max(0, at - CONTEXT)
        shown_start = clean(old.text[start:at])
        return PrefixBreak(
            place=new.place or old.place,
            same_bytes=count_same_bytes(before[1], after[1]),
            before=shown_start + clean(old.text[at : at + CONTEXT]),
            after=shown_start + clean(new.text[at : at + CONTEXT]),
            difference=len(shown_start),
            cause=guess_cause(before[1], after[1], number, at),
        )
    return None


def guess_cause(before: Sequence[Segment], after: Sequence[Segment], number: int, at: int) -> str:
    """The likely reason of a difference, as a sentence."""
    old = before[number]
    if old.place.startswith("/tools/"):
        return _describe_tool_changes([one.label for one in before], [one.label for one in after], old.label)
    if number >= len(after):
        return "the history is shorter than before: it was cut or compacted"
    new = after[number]
    around = new.text[max(0, at - 12) : at + 24]
    if _CHANGING_TEXT.search(around):
        return f"a time, a date or an id at {new.place} changes from turn to turn"
    if old.place != new.place or old.place.count("/") == 1:
        return "the instructions have changed"
    return "an earlier message was rewritten"


def _describe_tool_changes(before: Sequence[str], after: Sequence[str], first: str) -> str:
    """What has changed in the list of tools, by their names ("" for what is not a tool)."""
    added = [name for name in after if name not in before]
    removed = [name for name in before if name not in after]
    named = (("added", added), ("removed", removed))
    changes = [f"{word} {', '.join(names[:3])}" for word, names in named if names]
    if changes:
        return f"the list of tools has changed: {' and '.join(changes)}"
    is_moved = [name for name in before if name] != [name for name in after if name]
    return "the tools are in another order" if is_moved else f"the declaration of the tool {first} has changed"
