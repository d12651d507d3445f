"""Resolves `previous_response_id`, `conversation` and `item_reference`: loads the stored items, and puts them into the
request in place of the reference."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.core.json_values import Object
from toolwire.gateway.responses_state.background import fail_if_abandoned
from toolwire.gateway.responses_state.recorder import read_stored_item, read_stored_response
from toolwire.gateway.responses_state.response_objects import (
    COMPACTION,
    COMPACTION_TRIGGER,
    clean_item,
    is_reference,
    item_type,
    not_found_failure,
    read_input_items,
    read_output,
)
from toolwire.gateway.responses_state.state_options import StateOptions
from toolwire.gateway.store.repository import (
    CONVERSATION,
    ITEM,
    RESPONSE,
    StateRepository,
    no_store_failure,
    store_unavailable_failure,
)
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses.names import UNFINISHED_STATUSES

STATELESS_HINT = "with `store: false` and the whole conversation in the request, the store is not needed"


class StoredHistory(Struct, frozen=True, kw_only=True):
    """The stored items that a request refers to."""

    items: list[Object]
    """The items of the turns before it, from `previous_response_id` or `conversation`."""
    referenced: dict[str, Object]
    """The items of its `item_reference`s, by id."""

    @property
    def new_references(self) -> dict[str, Object]:
        """The referenced items that are not in the turns before."""
        known_ids = {item.get("id") for item in self.items}
        return {id: item for id, item in self.referenced.items() if id not in known_ids}


# --- loading ----------------------------------------------------------------------------------------------------------


async def load_history(
    repository: StateRepository, owner: str, options: StateOptions, hint: str = ""
) -> StoredHistory | Failure:
    """Load everything that a request refers to; a failure if something of it is missing."""
    if not repository.is_enabled and options.refers_to_stored:
        return no_store_failure(400)
    items: list[Object] | Failure = []
    if options.previous_response_id:
        items = await load_previous_responses(repository, owner, options.previous_response_id, hint)
    elif options.conversation:
        items = await _load_conversation_items(repository, owner, options.conversation, hint)
    if isinstance(items, Failure):
        return items
    referenced = await _load_referenced_items(repository, owner, options.references, hint)
    return referenced if isinstance(referenced, Failure) else StoredHistory(items=items, referenced=referenced)


async def load_previous_responses(
    repository: StateRepository, owner: str, previous_response_id: str, hint: str = ""
) -> list[Object] | Failure:
    """The input and output items of this response and of all responses before it, oldest first."""
    entries = await repository.get_chain(owner, previous_response_id)
    if isinstance(entries, StoreDown):
        return store_unavailable_failure(entries, hint)
    if not entries:
        return not_found_failure("previous", previous_response_id)
    if entries[0].parent:
        return not_found_failure("previous", entries[0].parent)
    last = await fail_if_abandoned(repository, entries[-1])
    if isinstance(last, StoreDown):
        return store_unavailable_failure(last, hint)
    if last.mark in UNFINISHED_STATUSES:
        message = f"the response `{previous_response_id}` is still {last.mark}; wait until it has completed"
        return Failure("conflict", message, 400, "response_not_completed")
    entries[-1] = last
    await repository.extend_expiring(owner, RESPONSE, [(entry.id, entry.expires) for entry in entries])
    items: list[Object] = []
    for entry in entries:
        stored = read_stored_response(entry)
        items += stored.items
        items += read_output(stored.response)
    return items


async def _load_conversation_items(
    repository: StateRepository, owner: str, id: str, hint: str
) -> list[Object] | Failure:
    conversation = await repository.get_one(owner, CONVERSATION, id)
    if isinstance(conversation, StoreDown):
        return store_unavailable_failure(conversation, hint)
    if conversation is None:
        return not_found_failure("conversation", id)
    entries = await repository.get_children(owner, ITEM, id)
    if isinstance(entries, StoreDown):
        return store_unavailable_failure(entries, hint)
    # All expire at the same time, so that a conversation never loses only its first items.
    expires = min((conversation.expires, *(entry.expires for entry in entries)))
    await repository.extend_expiring(owner, CONVERSATION, [(id, expires)])
    await repository.extend_expiring(owner, ITEM, [(entry.id, expires) for entry in entries])
    return [read_stored_item(entry) for entry in entries]


async def _load_referenced_items(
    repository: StateRepository, owner: str, ids: tuple[str, ...], hint: str
) -> dict[str, Object] | Failure:
    """Single items. For an output item the store has only a pointer to its response, which contains it."""
    if not ids:
        return {}
    entries = await repository.get(owner, ITEM, ids)
    if isinstance(entries, StoreDown):
        return store_unavailable_failure(entries, hint)
    found = {entry.id: read_stored_item(entry) for entry in entries if entry.body}
    pointers = {entry.id: entry.parent for entry in entries if not entry.body}
    if pointers:
        responses = await repository.get(owner, RESPONSE, list(dict.fromkeys(pointers.values())))
        if isinstance(responses, StoreDown):
            return store_unavailable_failure(responses, hint)
        for response in responses:
            for item in read_output(read_stored_response(response).response):
                if item.get("id") in pointers:
                    found[str(item["id"])] = item
    missing = [id for id in ids if id not in found]
    return not_found_failure("item", missing[0]) if missing else found


async def load_input_items(repository: StateRepository, entry: Entry) -> list[Object] | Failure:
    """All items that a stored response was made from: those before its request, and those of its request."""
    stored = read_stored_response(entry)
    if entry.parent:
        items = await load_previous_responses(repository, entry.owner, entry.parent)
        return items if isinstance(items, Failure) else [*items, *stored.items]
    if not stored.conversation:
        return stored.items
    entries = await repository.get_children(entry.owner, ITEM, stored.conversation)
    if isinstance(entries, StoreDown):
        return store_unavailable_failure(entries)
    items = [read_stored_item(one) for one in entries]
    output_ids = {item.get("id") for item in read_output(stored.response)}
    end = next((number for number, item in enumerate(items) if item.get("id") in output_ids), None)
    if end is not None:
        return items[:end]
    # The output is not in the conversation: give what was there at the time, and the request's own input.
    return [*(item for one, item in zip(entries, items, strict=True) if one.created < entry.created), *stored.items]


# --- putting it into the request --------------------------------------------------------------------------------------

_STATE_KEYS = frozenset({"previous_response_id", "conversation", "background"})
_LASTING_TYPES = frozenset({"additional_tools", "configuration_update"})
"""Items that still apply after the conversation before them was compacted."""


def expand_request(body: Object, history: list[Object], referenced: Mapping[str, Object]) -> Object:
    """The request with the history before its own items, and items in place of references to them.

    This is also done for the first turn of a conversation, so that later turns repeat exactly the same items and the
    provider's prompt cache matches.
    """
    own_items = read_input_items(body)
    out = {key: value for key, value in body.items() if key not in _STATE_KEYS}
    before = [item for item in history if item.get("type") != COMPACTION_TRIGGER]
    out["input"] = resolve_references([*_drop_compacted(before, own_items), *own_items], referenced)
    return out


def resolve_references(items: list[Object], referenced: Mapping[str, Object]) -> list[Object]:
    """The items, cleaned, with references replaced by the items they refer to. No item appears twice."""
    known_ids = {item.get("id") for item in items if not is_reference(item)}
    out: list[Object] = []
    for item in items:
        if not is_reference(item):
            out.append(clean_item(item))
        elif item["id"] not in known_ids:
            known_ids.add(item["id"])
            out.append(clean_item(referenced.get(item["id"], item)))
    return out


def _drop_compacted(history: list[Object], new_items: list[Object]) -> list[Object]:
    """The history without what its last compaction item sums up. As in OpenAI's own compaction, messages that are not
    the model's stay, and so do calls whose result comes later."""
    last = max((number for number, item in enumerate(history) if item.get("type") == COMPACTION), default=0)
    answered = {item.get("call_id") for item in (*history[last:], *new_items)} - {None}
    remaining = [
        item
        for item in history[:last]
        if (item_type(item) == "message" and item.get("role") != "assistant")
        or item.get("type") in _LASTING_TYPES
        or item.get("call_id") in answered
    ]
    return remaining + history[last:]
