"""Errands about what is kept: their paths, pages of lists, conversations, and what is said of things that are gone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object
from toolwire.keeping import Errand, Page
from toolwire.protocols.openai_responses.details.kept_requests import write_listed_item
from toolwire.protocols.openai_responses.errors import invalid_request_failure, wrong_type_failure
from toolwire.protocols.openai_responses.http import PATH

COMPACT_PATH = f"{PATH}/compact"
_CONVERSATIONS_PATH = "/v1/conversations"

# --- paths ------------------------------------------------------------------------------------------------------------

_Action: TypeAlias = Literal[
    "response", "response-delete", "response-cancel", "response-items", "compact",
    "conversation-create", "conversation", "conversation-update", "conversation-delete",
    "items", "items-add", "item", "item-delete",
]  # fmt: skip

_PERCENT_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")

_RESERVED_SEGMENTS = frozenset({"compact", "input_tokens"})
"""What stands in a path where else an id does."""

_RESPONSE_ACTIONS: Mapping[tuple[str, str], _Action] = MappingProxyType(
    {
        ("GET", ""): "response",
        ("DELETE", ""): "response-delete",
        ("POST", "cancel"): "response-cancel",
        ("GET", "input_items"): "response-items",
    }
)
_CONVERSATION_ACTIONS: Mapping[tuple[str, str], _Action] = MappingProxyType(
    {
        ("GET", ""): "conversation",
        ("POST", ""): "conversation-update",
        ("DELETE", ""): "conversation-delete",
        ("GET", "items"): "items",
        ("POST", "items"): "items-add",
    }
)
_ITEM_ACTIONS: Mapping[str, _Action] = MappingProxyType({"GET": "item", "DELETE": "item-delete"})


def match_state_endpoint(method: str, path: str) -> Errand | None:
    if method == "POST" and path == COMPACT_PATH:
        return Errand(verb="compact")
    if method == "POST" and path == _CONVERSATIONS_PATH:
        return Errand(verb="conversation-create")
    if path.startswith(f"{PATH}/"):
        id, _, rest = path[len(PATH) + 1 :].partition("/")
        return None if id in _RESERVED_SEGMENTS else _build_match(_RESPONSE_ACTIONS.get((method, rest)), id)
    if path.startswith(f"{_CONVERSATIONS_PATH}/"):
        id, _, rest = path[len(_CONVERSATIONS_PATH) + 1 :].partition("/")
        word, _, item = rest.partition("/")
        if word == "items" and item and "/" not in item:
            return _build_match(_ITEM_ACTIONS.get(method), id, item)
        return _build_match(_CONVERSATION_ACTIONS.get((method, rest)), id)
    return None


def _build_match(verb: _Action | None, id: str, item: str = "") -> Errand | None:
    return Errand(verb=verb, id=_decode_segment(id), item=_decode_segment(item)) if verb is not None and id else None


def _decode_segment(segment: str) -> str:
    """A segment of a path without its percent signs."""
    data = _PERCENT_ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), segment.encode("utf-8", "surrogatepass"))
    return data.decode("utf-8", "replace")


# --- lists ------------------------------------------------------------------------------------------------------------

_ORDERS: Mapping[str, bool] = MappingProxyType({"desc": True, "asc": False})
_MAX_PAGE_SIZE = 100


def read_page(query: Mapping[str, str]) -> Page | Failure:
    page = Page()
    word = query.get("limit", str(page.limit))
    try:
        limit = int(word)
    except ValueError:
        return wrong_type_failure("limit", "an integer", word)
    if limit > _MAX_PAGE_SIZE:
        expected = f"Expected a value <= {_MAX_PAGE_SIZE}, but got {limit} instead."
        said = f"Invalid 'limit': integer above maximum value. {expected}"
        return invalid_request_failure(said, "limit", "integer_above_max_value")
    if limit < 1:
        said = f"Invalid 'limit': integer below minimum value. Expected a value >= 1, but got {limit} instead."
        return invalid_request_failure(said, "limit", "integer_below_min_value")
    order = query.get("order", "desc")
    if order not in _ORDERS:
        return invalid_request_failure(
            f"Invalid value: '{order}'. Supported values are: 'asc' and 'desc'.", "order", "invalid_value"
        )
    return Page(after=query.get("after", ""), limit=limit, descending=_ORDERS[order])


def write_page(items: list[Object], has_more: bool) -> Object:
    ends = (items[0], items[-1]) if items else ({}, {})
    return {
        "object": "list",
        "data": [write_listed_item(item) for item in items],
        "first_id": ends[0].get("id") or "",
        "last_id": ends[1].get("id") or "",
        "has_more": has_more,
    }


_DELETED_OBJECTS: Mapping[str, str] = MappingProxyType({"conversation": "conversation.deleted"})


def write_deleted(kind: str, id: str) -> Object:
    return {"id": id, "object": _DELETED_OBJECTS.get(kind, kind), "deleted": True}


# --- conversations ----------------------------------------------------------------------------------------------------

_MAX_ITEMS = 20
_MAX_METADATA_PAIRS = 16
_MAX_METADATA_KEY_LENGTH = 64
_MAX_METADATA_VALUE_LENGTH = 512


def read_conversation(body: Object) -> tuple[list[Object], Json] | Failure:
    items = _read_items(body.get("items"))
    if isinstance(items, Failure):
        return items
    metadata = _check_metadata(body.get("metadata"))
    return metadata if isinstance(metadata, Failure) else (items, metadata)


def read_metadata(body: Object) -> Json | Failure:
    return _check_metadata(body["metadata"]) if "metadata" in body else _missing_parameter_failure("metadata")


def read_added_items(body: Object) -> list[Object] | Failure:
    return _read_items(body["items"]) if body.get("items") is not None else _missing_parameter_failure("items")


def _missing_parameter_failure(key: str) -> Failure:
    return invalid_request_failure(f"Missing required parameter: '{key}'.", key, "missing_required_parameter")


def _read_items(value: Json) -> list[Object] | Failure:
    if value is None:
        return []
    if not isinstance(value, list):
        return wrong_type_failure("items", "an array of objects", value)
    if len(value) > _MAX_ITEMS:
        much = f"Expected an array with maximum length {_MAX_ITEMS}, but got one with length {len(value)} instead."
        return invalid_request_failure(f"Invalid 'items': array too long. {much}", "items", "array_above_max_length")
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            return wrong_type_failure(f"items[{number}]", "an object", item)
    return value


def _check_metadata(value: Json) -> Json | Failure:
    if value is None:
        return {}
    if not isinstance(value, dict):
        return wrong_type_failure("metadata", "an object", value)
    if len(value) > _MAX_METADATA_PAIRS:
        much = f"Expected an object with at most {_MAX_METADATA_PAIRS} properties, but got {len(value)} instead."
        return invalid_request_failure(
            f"Invalid 'metadata': too many properties. {much}", "metadata", "object_above_max_properties"
        )
    for key, text in value.items():
        fault = _check_metadata_pair(key, text)
        if fault is not None:
            return fault
    return value


def _check_metadata_pair(key: str, text: Json) -> Failure | None:
    where = f"metadata.{key}"
    if len(key) > _MAX_METADATA_KEY_LENGTH:
        return _too_long_failure("Invalid property name in 'metadata'", "metadata", _MAX_METADATA_KEY_LENGTH, len(key))
    if not isinstance(text, str):
        return wrong_type_failure(where, "a string", text)
    if len(text) > _MAX_METADATA_VALUE_LENGTH:
        return _too_long_failure(f"Invalid '{where}'", where, _MAX_METADATA_VALUE_LENGTH, len(text))
    return None


def _too_long_failure(what: str, where: str, limit: int, length: int) -> Failure:
    much = f"Expected a string with maximum length {limit}, but got a string with length {length} instead."
    return invalid_request_failure(f"{what}: string too long. {much}", where, "string_above_max_length")


def write_conversation(id: str, created: int, metadata: Json) -> Object:
    return {"id": id, "object": "conversation", "created_at": created, "metadata": metadata}


# --- gone -------------------------------------------------------------------------------------------------------------

_KIND_NAMES: Mapping[str, str] = MappingProxyType(
    {"response": "Response", "conversation": "Conversation", "item": "Item"}
)


def not_found_failure(kind: str, id: str) -> Failure:
    if kind == "previous":
        said = f"Previous response with id '{id}' not found."
        return Failure("not_found", said, 400, "previous_response_not_found", "previous_response_id")
    return Failure("not_found", f"{_KIND_NAMES.get(kind, kind)} with id '{id}' not found.", 404)
