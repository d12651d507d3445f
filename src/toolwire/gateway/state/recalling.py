"""A request that builds on what is kept, made whole: earlier turns put in where it only refers to them."""

from __future__ import annotations

from msgspec import Struct

from toolwire.gateway.state.book import (
    CONVERSATION,
    ITEM,
    LIVING,
    RESPONSE,
    Book,
    read_kept,
    unreachable,
)
from toolwire.gateway.state.forgetful import nothing_kept
from toolwire.gateway.state.jobs import looked_after
from toolwire.gateway.store.record import Down, Entry
from toolwire.ir import Failure
from toolwire.keeping import Keeping, Wants
from toolwire.wire import Object, as_object, decode

WITHOUT = "with `store: false` and the whole conversation in the request it needs none"


class Recalled(Struct, frozen=True, kw_only=True):
    """What a request refers to."""

    history: list[Object]
    """The items of the turns before it."""
    found: dict[str, Object]
    """Single items that it names, by their ids."""
    chain: tuple[str, ...] = ()
    """The answers before it, oldest first."""

    @property
    def fresh(self) -> dict[str, Object]:
        """Those of the single items that do not stand in the turns before."""
        there = {item.get("id") for item in self.history}
        return {id: item for id, item in self.found.items() if id not in there}


async def recalled(book: Book, owner: str, keeping: Keeping, wants: Wants, hint: str = "") -> Recalled | Failure:
    """Everything that it refers to, or what is missing of it."""
    if not book.keeps and (wants.previous or wants.conversation or wants.references):
        return nothing_kept(400)
    history: list[Object] = []
    chain: tuple[str, ...] = ()
    if wants.previous:
        got = await past(book, owner, keeping, wants.previous, hint)
        if isinstance(got, Failure):
            return got
        chain, history = got
    elif wants.conversation:
        talked = await _talked(book, owner, keeping, wants.conversation, hint)
        if isinstance(talked, Failure):
            return talked
        history = talked
    found = await _named(book, owner, keeping, wants.references, hint)
    return found if isinstance(found, Failure) else Recalled(history=history, found=found, chain=chain)


async def past(
    book: Book, owner: str, keeping: Keeping, id: str, hint: str = ""
) -> tuple[tuple[str, ...], list[Object]] | Failure:
    """The answers up to this one, and all items of theirs: what was asked and what was answered."""
    entries = await book.chain(owner, id)
    if isinstance(entries, Down):
        return unreachable(entries, hint)
    if not entries:
        return keeping.not_found("previous", id)
    if entries[0].parent:
        return keeping.not_found("previous", entries[0].parent)
    last = await looked_after(book, keeping, entries[-1])
    if isinstance(last, Down):
        return unreachable(last, hint)
    if last.mark in LIVING:
        what = f"the answer `{id}` is not there yet (it is {last.mark}): wait for it before you go on from it"
        return Failure("conflict", what, 400, "response_not_completed")
    entries[-1] = last
    await book.refresh(owner, RESPONSE, [(entry.id, entry.expires) for entry in entries])
    items: list[Object] = []
    for entry in entries:
        kept = read_kept(entry)
        items += kept.items
        items += keeping.output(kept.response)
    return tuple(entry.id for entry in entries), items


async def _talked(book: Book, owner: str, keeping: Keeping, id: str, hint: str) -> list[Object] | Failure:
    talk = await book.one(owner, CONVERSATION, id)
    entries = talk if isinstance(talk, Down) or talk is None else await book.children(owner, ITEM, id)
    if isinstance(entries, Down):
        return unreachable(entries, hint)
    if talk is None or entries is None or isinstance(talk, Down):
        return keeping.not_found("conversation", id)
    # All live equally long: a conversation without the first of its items would be another one.
    ends = min((talk.expires, *(entry.expires for entry in entries)))
    await book.refresh(owner, CONVERSATION, [(id, ends)])
    await book.refresh(owner, ITEM, [(entry.id, ends) for entry in entries])
    return [_object(entry) for entry in entries]


async def _named(
    book: Book, owner: str, keeping: Keeping, ids: tuple[str, ...], hint: str
) -> dict[str, Object] | Failure:
    """Single items. Those of an answer are only pointed at: they stand in the answer."""
    if not ids:
        return {}
    entries = await book.get(owner, ITEM, ids)
    if isinstance(entries, Down):
        return unreachable(entries, hint)
    found = {entry.id: _object(entry) for entry in entries if entry.body}
    pointers = {entry.id: entry.parent for entry in entries if not entry.body}
    if pointers:
        answers = await book.get(owner, RESPONSE, list(dict.fromkeys(pointers.values())))
        if isinstance(answers, Down):
            return unreachable(answers, hint)
        for answer in answers:
            for item in keeping.output(read_kept(answer).response):
                if item.get("id") in pointers:
                    found[str(item["id"])] = item
    missing = [id for id in ids if id not in found]
    return keeping.not_found("item", missing[0]) if missing else found


def _object(entry: Entry) -> Object:
    return as_object(decode(entry.body, max_bytes=len(entry.body)), None)
