"""Conversations that clients keep here: made, read, changed, and their items."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping

from toolwire.gateway.call import Reply
from toolwire.gateway.headers import JSON
from toolwire.gateway.state.book import CONVERSATION, ITEM, Talk, read_talk, written
from toolwire.gateway.state.keeper import talk_items
from toolwire.gateway.state.recalling import recalled
from toolwire.gateway.state.visit import Outcome, Visit
from toolwire.gateway.store.record import Down, Entry
from toolwire.ir import Failure
from toolwire.keeping import Wants
from toolwire.wire import Json, Object, as_object, decode, encode

STANDS = ("",)
"""The mark of a conversation: what is written with it is written only while it is there."""


async def _talk(visit: Visit) -> Entry | Outcome:
    entry = await visit.book.one(visit.owner, CONVERSATION, visit.errand.id)
    if isinstance(entry, Down):
        return visit.down(entry)
    return visit.missing("conversation", visit.errand.id) if entry is None else entry


async def _whole(visit: Visit, items: list[Object]) -> list[Object] | Reply:
    """Items with those put in that they only refer to."""
    ids = visit.keeping.referred(items)
    if isinstance(ids, Failure):
        return visit.refused(ids)
    if not ids:
        return items
    got = await recalled(visit.book, visit.owner, visit.keeping, Wants(references=ids))
    return visit.refused(got) if isinstance(got, Failure) else visit.keeping.resolved(items, got.found)


def _shown(visit: Visit, entry: Entry) -> Reply:
    talk = read_talk(entry)
    return Reply(200, JSON, encode(visit.keeping.write_conversation(entry.id, talk.created, talk.metadata)))


def _entry(visit: Visit, id: str, created: float, metadata: Json, expires: float = 0.0) -> Entry:
    body = written(Talk(created=int(created), metadata=metadata))
    return Entry(owner=visit.owner, kind=CONVERSATION, id=id, body=body, created=created, expires=expires)


async def _create(visit: Visit) -> Outcome:
    body = visit.body()
    if isinstance(body, Reply):
        return body
    asked = visit.keeping.read_conversation(body)
    if isinstance(asked, Failure):
        return visit.refused(asked)
    given, metadata = asked
    items = await _whole(visit, given)
    if isinstance(items, Reply):
        return items
    seed, now = secrets.token_hex(12), visit.book.clock()
    entry = _entry(visit, visit.keeping.new("conversation", seed), now, metadata)
    behind = talk_items(visit.owner, entry.id, visit.keeping.renewed(items, seed), now)
    got = await visit.book.put(entry, behind=behind)
    return visit.down(got) if isinstance(got, Down) else _shown(visit, entry)


async def _read(visit: Visit) -> Outcome:
    entry = await _talk(visit)
    return _shown(visit, entry) if isinstance(entry, Entry) else entry


async def _update(visit: Visit) -> Outcome:
    entry, body = await _talk(visit), visit.body()
    if not isinstance(entry, Entry):
        return entry
    if isinstance(body, Reply):
        return body
    metadata = visit.keeping.read_metadata(body)
    if isinstance(metadata, Failure):
        return visit.refused(metadata)
    # Not longer than its items, or it would be there without the first of them.
    changed = _entry(visit, entry.id, entry.created, metadata, entry.expires)
    got = await visit.book.put(changed, where=STANDS)
    if got is False:
        return visit.missing("conversation", entry.id)
    return visit.down(got) if isinstance(got, Down) else _shown(visit, changed)


async def _delete(visit: Visit) -> Outcome:
    entry = await _talk(visit)
    if not isinstance(entry, Entry):
        return entry
    got = await visit.book.delete(visit.owner, CONVERSATION, entry.id)
    if isinstance(got, Down):
        return visit.down(got)
    return Reply(200, JSON, encode(visit.keeping.write_deleted("conversation", entry.id)))


# --- items ----------------------------------------------------------------------------------------------------------


async def _items(visit: Visit) -> Outcome:
    page = visit.page()
    if isinstance(page, Reply):
        return page
    entry = await _talk(visit)
    if not isinstance(entry, Entry):
        return entry
    entries = await visit.book.children(visit.owner, ITEM, entry.id)
    return visit.down(entries) if isinstance(entries, Down) else visit.paged(list(map(_object, entries)), page)


async def _add(visit: Visit) -> Outcome:
    entry, body = await _talk(visit), visit.body()
    if not isinstance(entry, Entry):
        return entry
    if isinstance(body, Reply):
        return body
    added = visit.keeping.read_added(body)
    if isinstance(added, Failure):
        return visit.refused(added)
    whole = await _whole(visit, added)
    if isinstance(whole, Reply):
        return whole
    items = visit.keeping.renewed(whole, secrets.token_hex(12))
    behind = talk_items(visit.owner, entry.id, items, visit.book.clock())
    got = await visit.book.put(entry, where=STANDS, behind=behind)
    if got is False:
        return visit.missing("conversation", entry.id)
    return (
        visit.down(got) if isinstance(got, Down) else Reply(200, JSON, encode(visit.keeping.write_page(items, False)))
    )


async def _of(visit: Visit, talk: Entry) -> Entry | Reply:
    item = await visit.book.one(visit.owner, ITEM, visit.errand.item)
    if isinstance(item, Down):
        return visit.down(item)
    if item is None or item.parent != talk.id:
        return visit.refused(visit.keeping.not_found("item", visit.errand.item))
    return item


async def _item(visit: Visit) -> Outcome:
    talk = await _talk(visit)
    item = await _of(visit, talk) if isinstance(talk, Entry) else talk
    return Reply(200, JSON, encode(visit.keeping.write_item(_object(item)))) if isinstance(item, Entry) else item


async def _remove(visit: Visit) -> Outcome:
    talk = await _talk(visit)
    if not isinstance(talk, Entry):
        return talk
    item = await _of(visit, talk)
    got = await visit.book.delete(visit.owner, ITEM, item.id) if isinstance(item, Entry) else item
    if isinstance(got, Reply):
        return got
    return visit.down(got) if isinstance(got, Down) else _shown(visit, talk)


def _object(entry: Entry) -> Object:
    return as_object(decode(entry.body, max_bytes=len(entry.body)), None)


TALKS: Mapping[str, Callable[[Visit], Awaitable[Outcome]]] = {
    "conversation-create": _create,
    "conversation": _read,
    "conversation-update": _update,
    "conversation-delete": _delete,
    "items": _items,
    "items-add": _add,
    "item": _item,
    "item-delete": _remove,
}
