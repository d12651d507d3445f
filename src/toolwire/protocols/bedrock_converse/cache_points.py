"""Cache points of a request that was translated: how many there may be, in which order, and where there are none yet.

Claude takes four, and one of an hour may not follow one of five minutes in the order tools, system, messages (AWS's
page on prompt caching; measured in strands#3758). A cache point directly after a document with text is refused, too.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from toolwire.core.ir import Opaque, Request, source_path
from toolwire.core.json_values import Json, Object, Path
from toolwire.core.losses import OFF, Ledger
from toolwire.protocols.bedrock_converse.content import CACHE_POINT, Writing, write_cache_point
from toolwire.protocols.bedrock_converse.models import Family

MIN_CACHED_CHARACTERS = 4096
"""A shorter prompt is not worth a cache point: the smallest prefix that is cached has 1,024 tokens."""


class _Point(Struct, eq=False):
    """A cache point, and the place of what asked for it."""

    entries: list[Object]
    entry: Object
    where: Path
    in_turns: bool


def place_cache_points(body: Object, request: Request, writing: Writing) -> Object:
    """A body with as many of its cache points as are accepted, or with new ones if it has none."""
    points, ledger, facts = _list_points(body, request, writing), writing.ledger, writing.facts
    cache = request.settings.cache
    if cache is not None and cache != OFF:
        points += _add_last_point(body, cache, request, writing)
    if points:
        points = _keep_accepted(points, facts, ledger)
        _order_lifetimes(points, ledger)
        return body
    # What the model takes must be known: an unknown one may refuse all.
    if cache != OFF and facts.vendor and facts.caches:
        _add_points(body, facts, ledger)
    return body


def _list_points(body: Object, request: Request, writing: Writing) -> list[_Point]:
    tools = (body.get("toolConfig") or {}).get("tools") or []
    asked = iter([source_path(one) for one in request.tools if not isinstance(one, Opaque) and one.cache is not None])
    points: list[_Point] = []
    for number, entry in enumerate(tools):
        if CACHE_POINT in entry:
            tools[number] = dict(entry)  # the tools are shared with other requests
            points.append(_Point(tools, tools[number], next(asked, None), False))
    for entries, in_turns in _lists(body):
        places = writing.cache_places
        points += [_Point(entries, one, places.get(id(one)), in_turns) for one in entries if CACHE_POINT in one]
    return points


def _lists(body: Object) -> Iterator[tuple[list[Object], bool]]:
    yield body.get("system") or [], False
    for message in body["messages"]:
        yield message["content"], True


def _add_last_point(body: Object, cache: str, request: Request, writing: Writing) -> list[_Point]:
    """The breakpoint of the whole request, behind the last message of the user."""
    where = request.settings.where.get("cache")
    users = [message["content"] for message in body["messages"] if message["role"] == "user"]
    if not users or not writing.facts.caches:
        writing.ledger.note("cache-dropped", where, "the cache breakpoint of the request was left out")
        return []
    if CACHE_POINT in users[-1][-1]:
        return []
    entry = write_cache_point(cache, writing.ledger, where)
    users[-1].append(entry)
    return [_Point(users[-1], entry, where, True)]


def _keep_accepted(points: list[_Point], facts: Family, ledger: Ledger) -> list[_Point]:
    refused = [point for point in points if _is_after_document(point)]
    for point in refused:
        ledger.note("cache-dropped", point.where, "a cache point after a text document was left out")
    kept = [point for point in points if point not in refused]
    most = facts.max_cache_points
    if most is not None and len(kept) > most:
        # The earliest in the turns go first: later ones cover the same prefix.
        surplus = [*filter(_is_in_turns, kept), *[one for one in kept if not one.in_turns]][: len(kept) - most]
        for point in surplus:
            ledger.note("cache-dropped", point.where, "a cache breakpoint was left out", f"this model accepts {most}")
        refused += surplus
    for point in refused:
        point.entries[:] = [entry for entry in point.entries if entry is not point.entry]
    return [point for point in points if point not in refused]


def _is_in_turns(point: _Point) -> bool:
    return point.in_turns


def _is_after_document(point: _Point) -> bool:
    number = next(number for number, entry in enumerate(point.entries) if entry is point.entry)
    return number > 0 and _is_text_document(point.entries[number - 1])


def _is_text_document(entry: Object) -> bool:
    document = entry.get("document")
    return isinstance(document, dict) and document.get("format") in ("txt", "md", "csv", "html")


def _order_lifetimes(points: list[_Point], ledger: Ledger) -> None:
    is_short = False
    for point in points:
        if point.entry[CACHE_POINT].get("ttl") != "1h":
            is_short = True
        elif is_short:
            point.entry[CACHE_POINT] = {"type": "default"}
            why = "one of an hour may not follow one of five minutes"
            ledger.note("setting-mapped", point.where, "the cache lifetime `1h` became the default", why)


def _entry_size(entry: Json) -> int:
    """The characters of a block or a tool, roughly."""
    if isinstance(entry, str):
        return len(entry)
    if isinstance(entry, dict):
        return sum(_entry_size(value) for key, value in entry.items() if key not in ("bytes", "signature"))
    return sum(map(_entry_size, entry)) if isinstance(entry, list) else 2


def _add_points(body: Object, facts: Family, ledger: Ledger) -> None:
    """After the tools, the system prompt and the last message of the user, if there is enough before. They depend on
    nothing that comes later, so the cached prefix stays the same when the conversation continues."""
    tools, system = (body.get("toolConfig") or {}).get("tools") or [], body.get("system") or []
    users = [message["content"] for message in body["messages"] if message["role"] == "user"]
    head = _entry_size(tools) + _entry_size(system)
    places = [tools if facts.caches_tools else [], system] if head >= MIN_CACHED_CHARACTERS else []
    if users and head + sum(_entry_size(message["content"]) for message in body["messages"]) >= MIN_CACHED_CHARACTERS:
        places.append(users[-1])
    marked = [entries for entries in places if entries and not _is_text_document(entries[-1])]
    for entries in marked:
        entries.append(write_cache_point("", ledger, None))
    if marked:
        ledger.note("breakpoint-added", None, f"{len(marked)} cache breakpoints were added")
