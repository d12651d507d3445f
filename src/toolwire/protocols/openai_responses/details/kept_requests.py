"""What a request wants kept or refers to, its input as items, and the request with all that put in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter
from types import MappingProxyType

from msgspec import Struct

from toolwire.ids import digest
from toolwire.ir import Failure
from toolwire.keeping import Peek, Wants
from toolwire.protocols.openai_responses.errors import invalid, wrong_type
from toolwire.protocols.openai_responses.names import CALL_ITEMS, HOSTED_ITEMS, OUTPUT_ITEMS
from toolwire.reading import glancing
from toolwire.wire import Json, Object

REFERENCE = "item_reference"
TRIGGER = "compaction_trigger"
COMPACTION = "compaction"

# --- a quick look -----------------------------------------------------------------------------------------------------


class _Item(Struct, gc=False):
    type: Json = None
    role: Json = False
    """False where there is none."""


class _Top(Peek, frozen=True, gc=False):
    store: Json = None
    previous_response_id: Json = None
    conversation: Json = None
    background: Json = None
    input: list[_Item] | str | None = None


peek = glancing(_Top)
"""One look over the body, which builds only what is asked for here: long ones come with every turn."""
_kind_of = attrgetter("type")


def stateless(top: Peek) -> bool:
    if type(top) is not _Top or top.store is not False:
        return False
    if top.previous_response_id or top.conversation or top.background:
        return False
    if top.input.__class__ is not list:
        return True
    # One that stands for another, or for something to do, needs what is kept.
    kinds = list(map(_kind_of, top.input))
    if REFERENCE in kinds or TRIGGER in kinds:
        return False
    return None not in kinds or not any(item.type is None and item.role is False for item in top.input)


# --- what it wants ----------------------------------------------------------------------------------------------------


def wants(body: Object) -> Wants | Failure:
    """Null is as good as absent. What is refused here is refused in the vendor's words."""
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    store, background = body.get("store"), body.get("background")
    if isinstance(conversation, dict):
        conversation = conversation.get("id", conversation)
    faults = (
        _is_text(previous, "previous_response_id"),
        _is_text(conversation, "conversation"),
        _is_bool(store, "store"),
        _is_bool(background, "background"),
        _contradiction(previous, conversation, store, background),
        _bad_input(body.get("input")),
    )
    fault = next((fault for fault in faults if fault is not None), None)
    if fault is not None:
        return fault
    items = _listed(body)
    return Wants(
        store=store is not False,
        previous=previous or "",
        conversation=conversation or "",
        references=tuple(dict.fromkeys(item["id"] for item in items if is_reference(item))),
        background=background is True,
        summary=bool(items) and items[-1].get("type") == TRIGGER,
    )


def _is_text(value: Json, key: str) -> Failure | None:
    return None if value is None or isinstance(value, str) else wrong_type(key, "a string", value)


def _is_bool(value: Json, key: str) -> Failure | None:
    return None if value is None or isinstance(value, bool) else wrong_type(key, "a boolean", value)


def _contradiction(previous: Json, conversation: Json, store: Json, background: Json) -> Failure | None:
    if previous and conversation:
        both = "'previous_response_id' or 'conversation'"
        message = f"Mutually exclusive parameters. Ensure you are only providing one of: {both}."
        return invalid(message, "previous_response_id", "mutually_exclusive_parameters")
    if background is True and store is False:
        return invalid("Background mode requires 'store' to be true.", "background", "invalid_value")
    return None


def _bad_input(value: Json) -> Failure | None:
    if value is None or isinstance(value, str):
        return None
    if not isinstance(value, list):
        return wrong_type("input", "one of an array of objects or a string", value)
    for number, item in enumerate(value):
        if not isinstance(item, dict):
            return wrong_type(f"input[{number}]", "an object", item)
        if _points(item) and not (isinstance(item.get("id"), str) and item["id"]):
            return wrong_type(f"input[{number}].id", "a string", item.get("id"))
        if item.get("type") == TRIGGER and number < len(value) - 1:
            return invalid("A 'compaction_trigger' must be the last item of 'input'.", f"input[{number}]")
    return None


def _points(item: Object) -> bool:
    return item.get("type") == REFERENCE or (item.get("type") is None and "role" not in item)


def is_reference(item: Object) -> bool:
    """Does it stand for another item, by its id only?"""
    return _points(item) and isinstance(item.get("id"), str)


# --- items ------------------------------------------------------------------------------------------------------------

_PREFIXES: Mapping[str, str] = MappingProxyType(
    {shape.item: shape.prefix for shape in CALL_ITEMS.values()}
    | {shape.output: f"{shape.prefix[:-1]}o_" for shape in CALL_ITEMS.values()}
    | {kind: prefix for kind, (_, prefix) in HOSTED_ITEMS.items()}
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
_STATED = frozenset({"message", *CALL_ITEMS, *OUTPUT_ITEMS})
"""Items that have a status in every list."""

_PAIRED_BY_ID = frozenset({"local_shell_call_output"})
_OURS = re.compile(r"[a-z]+_tw[0-9a-f]{24}")
"""Ids that we gave; no vendor's looks so. They never reach a provider."""


def kind_of(item: Object) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else REFERENCE


def given_id(kind: str, *seed: object) -> str:
    return f"{_PREFIXES.get(kind, 'item_')}tw{digest('|'.join(map(str, seed)), 24)}"


def named(items: list[Object], seed: str) -> list[Object]:
    return [
        item
        if item.get("id") and isinstance(item["id"], str)
        else {**item, "id": given_id(kind_of(item), seed, number)}
        for number, item in enumerate(items)
    ]


def renewed(items: list[Object], seed: str) -> list[Object]:
    """One that bears the id of its call keeps it: that is what pairs them. What only refers to an item has that one's
    id and no other, and says nothing of its own."""
    return [
        item if kind_of(item) in _PAIRED_BY_ID else {**item, "id": given_id(kind_of(item), seed, number)}
        for number, item in enumerate(items)
        if not is_reference(item)
    ]


def items(body: Object, seed: str) -> list[Object]:
    return named([item for item in _listed(body) if item.get("type") != TRIGGER], seed)


def _listed(body: Object) -> list[Object]:
    """The input as items; a text is one message of the user."""
    value = body.get("input")
    if isinstance(value, str):
        return [user_message(value)]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def user_message(text: str) -> Object:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def shown(item: Object) -> Object:
    """An item as a list of items shows it: with its status, and a message in its full form."""
    kind = kind_of(item)
    if kind not in _STATED:
        return item
    out = {"id": item.get("id"), "type": kind, "status": "completed", **without(item, NULLS)}
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        mine = item.get("role") == "assistant"
        part = {"type": "output_text" if mine else "input_text", "text": content}
        out["content"] = [{**part, "annotations": []} if mine else part]
    return out


# --- put in -----------------------------------------------------------------------------------------------------------

NULLS = frozenset({"id", "status", "phase", "encrypted_content", "namespace", "caller", "created_by", "async"})
"""Clients send these as null when they repeat an answer, and the service refuses some of them so."""

_ANSWER_ONLY = frozenset({"created_by", "async_", "parsed_arguments", "parsed"})
_KEPT_KEYS = frozenset({"previous_response_id", "conversation", "background"})
_LASTING = frozenset({"additional_tools", "configuration_update"})
"""What holds from its place on, also when the talk before it is summed up."""


def expanded(body: Object, history: list[Object], found: Mapping[str, Object]) -> Object:
    own = _listed(body)
    out = {key: value for key, value in body.items() if key not in _KEPT_KEYS}
    before = [item for item in history if item.get("type") != TRIGGER]
    out["input"] = [cleaned(item) for item in _resolved([*_pruned(before, own), *own], found)]
    return out


def referred(items: list[Object]) -> tuple[str, ...] | Failure:
    found = wants({"input": items})
    return found if isinstance(found, Failure) else found.references


def resolved(items: list[Object], found: Mapping[str, Object]) -> list[Object]:
    out: list[Object] = expanded({"input": items}, [], found)["input"]
    return out


def _resolved(given: list[Object], found: Mapping[str, Object]) -> list[Object]:
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


def _pruned(history: list[Object], own: list[Object]) -> list[Object]:
    """A summary stands for all that the model said and did before it. What users and operators said stays, as the
    vendor's own summaries leave it; so does a call that is answered only behind the summary."""
    last = max((number for number, item in enumerate(history) if item.get("type") == COMPACTION), default=0)
    answered = {item.get("call_id") for item in (*history[last:], *own)} - {None}
    kept = [
        item
        for item in history[:last]
        if (kind_of(item) == "message" and item.get("role") != "assistant")
        or item.get("type") in _LASTING
        or item.get("call_id") in answered
    ]
    return kept + history[last:]


def cleaned(item: Object) -> Object:
    """An item as the service takes it back: without what only answers have, nulls of clients, and ids of ours."""
    item = without(item, NULLS)
    if not _ANSWER_ONLY.isdisjoint(item):
        item = {key: value for key, value in item.items() if key not in _ANSWER_ONLY}
    id = item.get("id")
    if isinstance(id, str) and _OURS.fullmatch(id) and not is_reference(item):
        item = {key: value for key, value in item.items() if key != "id"}
    content = item.get("content")
    if content is None and "content" in item and kind_of(item) != "message":
        return {key: value for key, value in item.items() if key != "content"}
    if isinstance(content, list) and any(isinstance(part, dict) and "parsed" in part for part in content):
        return {**item, "content": [_unparsed(part) for part in content]}
    return item


def without(item: Object, nulls: frozenset[str]) -> Object:
    if all(value is not None or key not in nulls for key, value in item.items()):
        return item
    return {key: value for key, value in item.items() if value is not None or key not in nulls}


def _unparsed(part: Json) -> Json:
    return {key: value for key, value in part.items() if key != "parsed"} if isinstance(part, dict) else part
