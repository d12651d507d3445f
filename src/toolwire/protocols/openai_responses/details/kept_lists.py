"""Errands about what is kept: their paths, pages of lists, conversations, and what is said of things that are gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from toolwire.ir import Failure
from toolwire.keeping import Errand, Page
from toolwire.protocols.openai_responses.details.kept_requests import shown
from toolwire.protocols.openai_responses.errors import invalid, wrong_type
from toolwire.protocols.openai_responses.http import PATH
from toolwire.wire import Json, Object

COMPACT_PATH = f"{PATH}/compact"
_CONVERSATIONS = "/v1/conversations"

# --- paths ------------------------------------------------------------------------------------------------------------

_Verb: TypeAlias = Literal[
    "response", "response-delete", "response-cancel", "response-items", "compact",
    "conversation-create", "conversation", "conversation-update", "conversation-delete",
    "items", "items-add", "item", "item-delete",
]  # fmt: skip

_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")

_LITERALS = frozenset({"compact", "input_tokens"})
"""What stands in a path where else an id does."""

_RESPONSES: Mapping[tuple[str, str], _Verb] = MappingProxyType(
    {
        ("GET", ""): "response",
        ("DELETE", ""): "response-delete",
        ("POST", "cancel"): "response-cancel",
        ("GET", "input_items"): "response-items",
    }
)
_TALKS: Mapping[tuple[str, str], _Verb] = MappingProxyType(
    {
        ("GET", ""): "conversation",
        ("POST", ""): "conversation-update",
        ("DELETE", ""): "conversation-delete",
        ("GET", "items"): "items",
        ("POST", "items"): "items-add",
    }
)
_ITEMS: Mapping[str, _Verb] = MappingProxyType({"GET": "item", "DELETE": "item-delete"})


def errand(method: str, path: str) -> Errand | None:
    if method == "POST" and path == COMPACT_PATH:
        return Errand(verb="compact")
    if method == "POST" and path == _CONVERSATIONS:
        return Errand(verb="conversation-create")
    if path.startswith(f"{PATH}/"):
        id, _, rest = path[len(PATH) + 1 :].partition("/")
        return None if id in _LITERALS else _about(_RESPONSES.get((method, rest)), id)
    if path.startswith(f"{_CONVERSATIONS}/"):
        id, _, rest = path[len(_CONVERSATIONS) + 1 :].partition("/")
        word, _, item = rest.partition("/")
        if word == "items" and item and "/" not in item:
            return _about(_ITEMS.get(method), id, item)
        return _about(_TALKS.get((method, rest)), id)
    return None


def _about(verb: _Verb | None, id: str, item: str = "") -> Errand | None:
    return Errand(verb=verb, id=_plain(id), item=_plain(item)) if verb is not None and id else None


def _plain(segment: str) -> str:
    """A segment of a path without its percent signs."""
    data = _PERCENT.sub(lambda found: bytes.fromhex(found[1].decode()), segment.encode("utf-8", "surrogatepass"))
    return data.decode("utf-8", "replace")


# --- lists ------------------------------------------------------------------------------------------------------------

_ORDERS: Mapping[str, bool] = MappingProxyType({"desc": True, "asc": False})
_MOST = 100


def read_page(query: Mapping[str, str]) -> Page | Failure:
    page = Page()
    word = query.get("limit", str(page.limit))
    try:
        limit = int(word)
    except ValueError:
        return wrong_type("limit", "an integer", word)
    if limit > _MOST:
        said = f"Invalid 'limit': integer above maximum value. Expected a value <= {_MOST}, but got {limit} instead."
        return invalid(said, "limit", "integer_above_max_value")
    if limit < 1:
        said = f"Invalid 'limit': integer below minimum value. Expected a value >= 1, but got {limit} instead."
        return invalid(said, "limit", "integer_below_min_value")
    order = query.get("order", "desc")
    if order not in _ORDERS:
        return invalid(f"Invalid value: '{order}'. Supported values are: 'asc' and 'desc'.", "order", "invalid_value")
    return Page(after=query.get("after", ""), limit=limit, descending=_ORDERS[order])


def write_page(items: list[Object], more: bool) -> Object:
    ends = (items[0], items[-1]) if items else ({}, {})
    return {
        "object": "list",
        "data": [shown(item) for item in items],
        "first_id": ends[0].get("id") or "",
        "last_id": ends[1].get("id") or "",
        "has_more": more,
    }


_GONE: Mapping[str, str] = MappingProxyType({"conversation": "conversation.deleted"})


def write_deleted(kind: str, id: str) -> Object:
    return {"id": id, "object": _GONE.get(kind, kind), "deleted": True}


# --- conversations ----------------------------------------------------------------------------------------------------

_MOST_ITEMS = 20
_MOST_PAIRS = 16
_KEY_LENGTH = 64
_VALUE_LENGTH = 512


def read_conversation(body: Object) -> tuple[list[Object], Json] | Failure:
    items = _read_items(body.get("items"))
    if isinstance(items, Failure):
        return items
    metadata = _checked(body.get("metadata"))
    return metadata if isinstance(metadata, Failure) else (items, metadata)


def read_metadata(body: Object) -> Json | Failure:
    return _checked(body["metadata"]) if "metadata" in body else _missing("metadata")


def read_added(body: Object) -> list[Object] | Failure:
    return _read_items(body["items"]) if body.get("items") is not None else _missing("items")


def _missing(key: str) -> Failure:
    return invalid(f"Missing required parameter: '{key}'.", key, "missing_required_parameter")


def _read_items(value: Json) -> list[Object] | Failure:
    if value is None:
        return []
    if not isinstance(value, list):
        return wrong_type("items", "an array of objects", value)
    if len(value) > _MOST_ITEMS:
        much = f"Expected an array with maximum length {_MOST_ITEMS}, but got one with length {len(value)} instead."
        return invalid(f"Invalid 'items': array too long. {much}", "items", "array_above_max_length")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            return wrong_type(f"items[{number}]", "an object", item)
    return value


def _checked(value: Json) -> Json | Failure:
    if value is None:
        return {}
    if not isinstance(value, dict):
        return wrong_type("metadata", "an object", value)
    if len(value) > _MOST_PAIRS:
        much = f"Expected an object with at most {_MOST_PAIRS} properties, but got {len(value)} instead."
        return invalid(f"Invalid 'metadata': too many properties. {much}", "metadata", "object_above_max_properties")
    for key, text in value.items():
        fault = _bad_pair(key, text)
        if fault is not None:
            return fault
    return value


def _bad_pair(key: str, text: Json) -> Failure | None:
    where = f"metadata.{key}"
    if len(key) > _KEY_LENGTH:
        return _too_long("Invalid property name in 'metadata'", "metadata", _KEY_LENGTH, len(key))
    if not isinstance(text, str):
        return wrong_type(where, "a string", text)
    if len(text) > _VALUE_LENGTH:
        return _too_long(f"Invalid '{where}'", where, _VALUE_LENGTH, len(text))
    return None


def _too_long(what: str, where: str, limit: int, length: int) -> Failure:
    much = f"Expected a string with maximum length {limit}, but got a string with length {length} instead."
    return invalid(f"{what}: string too long. {much}", where, "string_above_max_length")


def write_conversation(id: str, created: int, metadata: Json) -> Object:
    return {"id": id, "object": "conversation", "created_at": created, "metadata": metadata}


# --- gone -------------------------------------------------------------------------------------------------------------

_UNKNOWN: Mapping[str, str] = MappingProxyType({"response": "Response", "conversation": "Conversation", "item": "Item"})


def not_found(kind: str, id: str) -> Failure:
    if kind == "previous":
        said = f"Previous response with id '{id}' not found."
        return Failure("not_found", said, 400, "previous_response_not_found", "previous_response_id")
    return Failure("not_found", f"{_UNKNOWN.get(kind, kind)} with id '{id}' not found.", 404)
