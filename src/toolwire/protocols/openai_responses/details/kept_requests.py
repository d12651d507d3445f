"""What a request wants kept or refers to, its input as items, and the request with all that put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType

from msgspec import Struct

from toolwire.core.ids import hex_digest
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object
from toolwire.core.provenance import partial_decoder
from toolwire.keeping import Peek, Wants
from toolwire.protocols.openai_responses.errors import invalid_request_failure, wrong_type_failure
from toolwire.protocols.openai_responses.names import PROVIDER_ITEMS, SHAPE_BY_CALL_TYPE, SHAPE_BY_OUTPUT_TYPE

ITEM_REFERENCE = "item_reference"
COMPACTION_TRIGGER = "compaction_trigger"
COMPACTION = "compaction"

# --- a quick look -----------------------------------------------------------------------------------------------------


class _ItemPeek(Struct, gc=False):
    type: Json = None
    role: Json = False
    """False where there is none."""


class _RequestPeek(Peek, frozen=True, gc=False):
    store: Json = None
    previous_response_id: Json = None
    conversation: Json = None
    background: Json = None
    input: list[_ItemPeek] | str | None = None


peek_request = partial_decoder(_RequestPeek)
"""One look over the body, which builds only what is asked for here: long ones come with every turn."""
_peek_item_type = attrgetter("type")


def is_stateless(request: Peek) -> bool:
    if type(request) is not _RequestPeek or request.store is not False:
        return False
    if request.previous_response_id or request.conversation or request.background:
        return False
    if request.input.__class__ is not list:
        return True
    # One that stands for another, or for something to do, needs what is kept.
    kinds = list(map(_peek_item_type, request.input))
    if ITEM_REFERENCE in kinds or COMPACTION_TRIGGER in kinds:
        return False
    return None not in kinds or not any(item.type is None and item.role is False for item in request.input)


# --- what it wants ----------------------------------------------------------------------------------------------------


def read_state_options(body: Object) -> Wants | Failure:
    """Null is as good as absent. What is refused here is refused in the vendor's words."""
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    store, background = body.get("store"), body.get("background")
    if isinstance(conversation, dict):
        conversation = conversation.get("id", conversation)
    faults = (
        _check_text(previous, "previous_response_id"),
        _check_text(conversation, "conversation"),
        _check_bool(store, "store"),
        _check_bool(background, "background"),
        _check_conflicts(previous, conversation, store, background),
        _check_input(body.get("input")),
    )
    fault = next((fault for fault in faults if fault is not None), None)
    if fault is not None:
        return fault
    items = _read_input_items(body)
    return Wants(
        store=store is not False,
        previous=previous or "",
        conversation=conversation or "",
        references=tuple(dict.fromkeys(item["id"] for item in items if is_reference(item))),
        background=background is True,
        summary=bool(items) and items[-1].get("type") == COMPACTION_TRIGGER,
    )


def _check_text(value: Json, key: str) -> Failure | None:
    return None if value is None or isinstance(value, str) else wrong_type_failure(key, "a string", value)


def _check_bool(value: Json, key: str) -> Failure | None:
    return None if value is None or isinstance(value, bool) else wrong_type_failure(key, "a boolean", value)


def _check_conflicts(previous: Json, conversation: Json, store: Json, background: Json) -> Failure | None:
    if previous and conversation:
        both = "'previous_response_id' or 'conversation'"
        message = f"Mutually exclusive parameters. Ensure you are only providing one of: {both}."
        return invalid_request_failure(message, "previous_response_id", "mutually_exclusive_parameters")
    if background is True and store is False:
        return invalid_request_failure("Background mode requires 'store' to be true.", "background", "invalid_value")
    return None


def _check_input(value: Json) -> Failure | None:
    if value is None or isinstance(value, str):
        return None
    if not isinstance(value, list):
        return wrong_type_failure("input", "one of an array of objects or a string", value)
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            return wrong_type_failure(f"input[{number}]", "an object", item)
        if _has_reference_type(item) and not (isinstance(item.get("id"), str) and item["id"]):
            return wrong_type_failure(f"input[{number}].id", "a string", item.get("id"))
        if item.get("type") == COMPACTION_TRIGGER and number < len(value) - 1:
            return invalid_request_failure(
                "A 'compaction_trigger' must be the last item of 'input'.", f"input[{number}]"
            )
    return None


def _has_reference_type(item: Object) -> bool:
    return item.get("type") == ITEM_REFERENCE or (item.get("type") is None and "role" not in item)


def is_reference(item: Object) -> bool:
    """Does it stand for another item, by its id only?"""
    return _has_reference_type(item) and isinstance(item.get("id"), str)


# --- items ------------------------------------------------------------------------------------------------------------

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
"""Items that have a status in every list."""

_TYPES_PAIRED_BY_ID = frozenset({"local_shell_call_output"})
_GENERATED_ID = re.compile(r"[a-z]+_tw[0-9a-f]{24}")
"""Ids that we gave; no vendor's looks so. They never reach a provider."""


def item_type(item: Object) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else ITEM_REFERENCE


def make_item_id(kind: str, *seed: object) -> str:
    return f"{_ID_PREFIXES.get(kind, 'item_')}tw{hex_digest('|'.join(map(str, seed)), 24)}"


def add_missing_ids(items: list[Object], seed: str) -> list[Object]:
    return [
        item
        if item.get("id") and isinstance(item["id"], str)
        else {**item, "id": make_item_id(item_type(item), seed, number)}
        for number, item in enumerate(items)
    ]


def replace_ids(items: list[Object], seed: str) -> list[Object]:
    """One that bears the id of its call keeps it: that is what pairs them. What only refers to an item has that one's
    id and no other, and says nothing of its own."""
    return [
        item if item_type(item) in _TYPES_PAIRED_BY_ID else {**item, "id": make_item_id(item_type(item), seed, number)}
        for number, item in enumerate(items)
        if not is_reference(item)
    ]


def read_items(body: Object, seed: str) -> list[Object]:
    return add_missing_ids([item for item in _read_input_items(body) if item.get("type") != COMPACTION_TRIGGER], seed)


def _read_input_items(body: Object) -> list[Object]:
    """The input as items; a text is one message of the user."""
    value = body.get("input")
    if isinstance(value, str):
        return [write_user_message(value)]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def write_user_message(text: str) -> Object:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def write_listed_item(item: Object) -> Object:
    """An item as a list of items shows it: with its status, and a message in its full form."""
    kind = item_type(item)
    if kind not in _TYPES_WITH_STATUS:
        return item
    out = {"id": item.get("id"), "type": kind, "status": "completed", **drop_nulls(item, NULLABLE_KEYS)}
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        mine = item.get("role") == "assistant"
        part = {"type": "output_text" if mine else "input_text", "text": content}
        out["content"] = [{**part, "annotations": []} if mine else part]
    return out


# --- put in -----------------------------------------------------------------------------------------------------------

NULLABLE_KEYS = frozenset({"id", "status", "phase", "encrypted_content", "namespace", "caller", "created_by", "async"})
"""Clients send these as null when they repeat an answer, and the service refuses some of them so."""

_RESPONSE_ONLY_KEYS = frozenset({"created_by", "async_", "parsed_arguments", "parsed"})
_STATE_KEYS = frozenset({"previous_response_id", "conversation", "background"})
_LASTING_TYPES = frozenset({"additional_tools", "configuration_update"})
"""What holds from its place on, also when the talk before it is summed up."""


def expand_request(body: Object, history: list[Object], found: Mapping[str, Object]) -> Object:
    own = _read_input_items(body)
    out = {key: value for key, value in body.items() if key not in _STATE_KEYS}
    before = [item for item in history if item.get("type") != COMPACTION_TRIGGER]
    out["input"] = [clean_item(item) for item in _insert_referenced([*_prune_history(before, own), *own], found)]
    return out


def find_references(items: list[Object]) -> tuple[str, ...] | Failure:
    found = read_state_options({"input": items})
    return found if isinstance(found, Failure) else found.references


def resolve_references(items: list[Object], found: Mapping[str, Object]) -> list[Object]:
    out: list[Object] = expand_request({"input": items}, [], found)["input"]
    return out


def _insert_referenced(given: list[Object], found: Mapping[str, Object]) -> list[Object]:
    """References replaced by what they stand for. What stands in the talk already does not come a second time."""
    there = {item.get("id") for item in given if not is_reference(item)}
    out: list[Object] = []
    for item in given:
        if not is_reference(item):
            out.append(item)
        elif item["id"] not in there:
            there.add(item["id"])
            out.append(found.get(item["id"], item))
    return out


def _prune_history(history: list[Object], new_items: list[Object]) -> list[Object]:
    """A summary stands for all that the model said and did before it. What users and operators said stays, as the
    vendor's own summaries leave it; so does a call that is answered only behind the summary."""
    last = max((number for number, item in enumerate(history) if item.get("type") == COMPACTION), default=0)
    answered = {item.get("call_id") for item in (*history[last:], *new_items)} - {None}
    kept = [
        item
        for item in history[:last]
        if (item_type(item) == "message" and item.get("role") != "assistant")
        or item.get("type") in _LASTING_TYPES
        or item.get("call_id") in answered
    ]
    return kept + history[last:]


def clean_item(item: Object) -> Object:
    """An item as the service takes it back: without what only answers have, nulls of clients, and ids of ours."""
    item = drop_nulls(item, NULLABLE_KEYS)
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


def drop_nulls(item: Object, keys: frozenset[str]) -> Object:
    if all(value is not None or key not in keys for key, value in item.items()):
        return item
    return {key: value for key, value in item.items() if value is not None or key not in keys}


def _drop_parsed(part: Json) -> Json:
    return {key: value for key, value in part.items() if key != "parsed"} if isinstance(part, dict) else part
