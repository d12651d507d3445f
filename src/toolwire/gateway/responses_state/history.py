"""A request that builds on what is kept, made whole: earlier turns put in where it only refers to them."""

from __future__ import annotations

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.core.json_values import Object, decode, expect_object
from toolwire.gateway.responses_state.background import fail_if_abandoned
from toolwire.gateway.responses_state.recorder import no_store_failure
from toolwire.gateway.responses_state.repository import (
    CONVERSATION,
    ITEM,
    RESPONSE,
    UNFINISHED_STATUSES,
    StateRepository,
    read_stored_response,
    store_unavailable_failure,
)
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.keeping import Keeping, Wants

STATELESS_HINT = "with `store: false` and the whole conversation in the request it needs none"


class StoredHistory(Struct, frozen=True, kw_only=True):
    """What a request refers to."""

    history: list[Object]
    """The items of the turns before it."""
    referenced: dict[str, Object]
    """Single items that it names, by their ids."""
    response_ids: tuple[str, ...] = ()
    """The answers before it, oldest first."""

    @property
    def new_references(self) -> dict[str, Object]:
        """Those of the single items that do not stand in the turns before."""
        there = {item.get("id") for item in self.history}
        return {id: item for id, item in self.referenced.items() if id not in there}


async def load_history(
    repository: StateRepository, owner: str, keeping: Keeping, wants: Wants, hint: str = ""
) -> StoredHistory | Failure:
    """Everything that it refers to, or what is missing of it."""
    if not repository.is_enabled and (wants.previous or wants.conversation or wants.references):
        return no_store_failure(400)
    history: list[Object] = []
    chain: tuple[str, ...] = ()
    if wants.previous:
        got = await load_response_chain(repository, owner, keeping, wants.previous, hint)
        if isinstance(got, Failure):
            return got
        chain, history = got
    elif wants.conversation:
        talked = await _load_conversation_items(repository, owner, keeping, wants.conversation, hint)
        if isinstance(talked, Failure):
            return talked
        history = talked
    found = await _load_referenced_items(repository, owner, keeping, wants.references, hint)
    return found if isinstance(found, Failure) else StoredHistory(history=history, referenced=found, response_ids=chain)


async def load_response_chain(
    repository: StateRepository, owner: str, keeping: Keeping, id: str, hint: str = ""
) -> tuple[tuple[str, ...], list[Object]] | Failure:
    """The answers up to this one, and all items of theirs: what was asked and what was answered."""
    entries = await repository.get_chain(owner, id)
    if isinstance(entries, StoreDown):
        return store_unavailable_failure(entries, hint)
    if not entries:
        return keeping.not_found("previous", id)
    if entries[0].parent:
        return keeping.not_found("previous", entries[0].parent)
    last = await fail_if_abandoned(repository, keeping, entries[-1])
    if isinstance(last, StoreDown):
        return store_unavailable_failure(last, hint)
    if last.mark in UNFINISHED_STATUSES:
        what = f"the answer `{id}` is not there yet (it is {last.mark}): wait for it before you go on from it"
        return Failure("conflict", what, 400, "response_not_completed")
    entries[-1] = last
    await repository.extend_expiring(owner, RESPONSE, [(entry.id, entry.expires) for entry in entries])
    items: list[Object] = []
    for entry in entries:
        kept = read_stored_response(entry)
        items += kept.items
        items += keeping.output(kept.response)
    return tuple(entry.id for entry in entries), items


async def _load_conversation_items(
    repository: StateRepository, owner: str, keeping: Keeping, id: str, hint: str
) -> list[Object] | Failure:
    talk = await repository.get_one(owner, CONVERSATION, id)
    entries = talk if isinstance(talk, StoreDown) or talk is None else await repository.get_children(owner, ITEM, id)
    if isinstance(entries, StoreDown):
        return store_unavailable_failure(entries, hint)
    if talk is None or entries is None or isinstance(talk, StoreDown):
        return keeping.not_found("conversation", id)
    # All live equally long: a conversation without the first of its items would be another one.
    ends = min((talk.expires, *(entry.expires for entry in entries)))
    await repository.extend_expiring(owner, CONVERSATION, [(id, ends)])
    await repository.extend_expiring(owner, ITEM, [(entry.id, ends) for entry in entries])
    return [_read_item(entry) for entry in entries]


async def _load_referenced_items(
    repository: StateRepository, owner: str, keeping: Keeping, ids: tuple[str, ...], hint: str
) -> dict[str, Object] | Failure:
    """Single items. Those of an answer are only pointed at: they stand in the answer."""
    if not ids:
        return {}
    entries = await repository.get(owner, ITEM, ids)
    if isinstance(entries, StoreDown):
        return store_unavailable_failure(entries, hint)
    found = {entry.id: _read_item(entry) for entry in entries if entry.body}
    pointers = {entry.id: entry.parent for entry in entries if not entry.body}
    if pointers:
        answers = await repository.get(owner, RESPONSE, list(dict.fromkeys(pointers.values())))
        if isinstance(answers, StoreDown):
            return store_unavailable_failure(answers, hint)
        for answer in answers:
            for item in keeping.output(read_stored_response(answer).response):
                if item.get("id") in pointers:
                    found[str(item["id"])] = item
    missing = [id for id in ids if id not in found]
    return keeping.not_found("item", missing[0]) if missing else found


def _read_item(entry: Entry) -> Object:
    return expect_object(decode(entry.body, max_bytes=len(entry.body)), None)
