"""Items of OpenAI's Responses API: their ids, and their forms in requests and in lists."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.ids import hex_digest
from toolwire.core.json_values import Json, Object
from toolwire.protocols.openai_responses.names import PROVIDER_ITEMS, SHAPE_BY_CALL_TYPE, SHAPE_BY_OUTPUT_TYPE

ITEM_REFERENCE = "item_reference"
COMPACTION_TRIGGER = "compaction_trigger"
COMPACTION = "compaction"

_ID_PREFIXES: Mapping[str, str] = MappingProxyType(
    {shape.item_type: shape.id_prefix for shape in SHAPE_BY_CALL_TYPE.values()}
    | {shape.output_type: f"{shape.id_prefix[:-1]}o_" for shape in SHAPE_BY_CALL_TYPE.values()}
    | {kind: prefix for kind, (_, prefix) in PROVIDER_ITEMS.items()}
    | {
        "message": "msg_",
        "reasoning": "rs_",
        "image_generation_call": "ig_",
        "mcp_call": "mcp_",
        "mcp_list_tools": "mcpl_",
        "mcp_approval_request": "mcpr_",
        COMPACTION: "cmp_",
    }
)
_TYPES_WITH_STATUS = frozenset({"message", *SHAPE_BY_CALL_TYPE, *SHAPE_BY_OUTPUT_TYPE})
"""Types of items that have a `status` in every list."""
_TYPES_PAIRED_BY_ID = frozenset({"local_shell_call_output"})
"""Results that have the id of their call as their own `id`."""
_GENERATED_ID = re.compile(r"[a-z]+_tw[0-9a-f]{24}")
"""Ids that the gateway made. OpenAI's ids look different. They are never sent to a provider."""

# --- reading ----------------------------------------------------------------------------------------------------------


def item_type(item: Object) -> str:
    """The type of an item; OpenAI lets clients leave it out for messages and references."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else ITEM_REFERENCE


def has_reference_type(item: Object) -> bool:
    return item.get("type") == ITEM_REFERENCE or (item.get("type") is None and "role" not in item)


def is_reference(item: Object) -> bool:
    """Is it only the id of another item?"""
    return has_reference_type(item) and isinstance(item.get("id"), str)


def read_input_items(body: Object) -> list[Object]:
    """The `input` of a request as items; a string is one message of the user."""
    value = body.get("input")
    if isinstance(value, str):
        return [write_user_message(value)]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def read_items_to_store(body: Object, seed: str) -> list[Object]:
    """The `input` of a request as items with an id each; missing ids are made from the seed."""
    return add_missing_ids([item for item in read_input_items(body) if item.get("type") != COMPACTION_TRIGGER], seed)


# --- ids --------------------------------------------------------------------------------------------------------------


def add_missing_ids(items: list[Object], seed: str) -> list[Object]:
    """The items with an id each; missing ids are made from the seed."""
    return [
        item
        if item.get("id") and isinstance(item["id"], str)
        else {**item, "id": _make_item_id(item_type(item), seed, number)}
        for number, item in enumerate(items)
    ]


def replace_ids(items: list[Object], seed: str) -> list[Object]:
    """The items with new ids, as a conversation stores them. References are left out: they have no content."""
    return [
        item if item_type(item) in _TYPES_PAIRED_BY_ID else {**item, "id": _make_item_id(item_type(item), seed, number)}
        for number, item in enumerate(items)
        if not is_reference(item)
    ]


def _make_item_id(kind: str, *seed: object) -> str:
    return f"{_ID_PREFIXES.get(kind, 'item_')}tw{hex_digest('|'.join(map(str, seed)), 24)}"


# --- writing ----------------------------------------------------------------------------------------------------------

_NULLABLE_KEYS = frozenset({"id", "status", "phase", "encrypted_content", "namespace", "caller", "created_by", "async"})
"""Clients send these keys as null when they send an answer back. OpenAI refuses null for some of them."""
_RESPONSE_ONLY_KEYS = frozenset({"created_by", "async_", "parsed_arguments", "parsed"})


def write_user_message(text: str) -> Object:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def write_listed_item(item: Object) -> Object:
    """An item as a list shows it: with its status, and the content of a message as parts."""
    kind = item_type(item)
    if kind not in _TYPES_WITH_STATUS:
        return item
    out = {"id": item.get("id"), "type": kind, "status": "completed", **_drop_nulls(item)}
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        from_model = item.get("role") == "assistant"
        part = {"type": "output_text" if from_model else "input_text", "text": content}
        out["content"] = [{**part, "annotations": []} if from_model else part]
    return out


def clean_item(item: Object) -> Object:
    """An item as a provider accepts it: without keys that only answers have, nulls, and ids that the gateway made."""
    item = _drop_nulls(item)
    if not _RESPONSE_ONLY_KEYS.isdisjoint(item):
        item = {key: value for key, value in item.items() if key not in _RESPONSE_ONLY_KEYS}
    id = item.get("id")
    if isinstance(id, str) and _GENERATED_ID.fullmatch(id) and not is_reference(item):
        item = {key: value for key, value in item.items() if key != "id"}
    content = item.get("content")
    if content is None and "content" in item and item_type(item) != "message":
        return {key: value for key, value in item.items() if key != "content"}
    if isinstance(content, list) and any(isinstance(part, dict) and "parsed" in part for part in content):
        return {**item, "content": [_drop_parsed(part) for part in content]}
    return item


def _drop_nulls(item: Object) -> Object:
    if all(value is not None or key not in _NULLABLE_KEYS for key, value in item.items()):
        return item
    return {key: value for key, value in item.items() if value is not None or key not in _NULLABLE_KEYS}


def _drop_parsed(part: Json) -> Json:
    return {key: value for key, value in part.items() if key != "parsed"} if isinstance(part, dict) else part
