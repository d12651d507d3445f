"""The state options of a Responses request: `store`, `previous_response_id`, `conversation`, `background`,
`item_reference` and `compaction_trigger`."""

from __future__ import annotations

from operator import attrgetter

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object
from toolwire.core.provenance import partial_decoder
from toolwire.gateway.responses_state.response_objects import (
    COMPACTION_TRIGGER,
    ITEM_REFERENCE,
    has_reference_type,
    is_reference,
    read_input_items,
)
from toolwire.gateway.server.request_body import Peek
from toolwire.protocols.openai_responses.errors import invalid_request_failure, wrong_type_failure


class StateOptions(Struct, frozen=True, kw_only=True):
    """What a request asks the gateway to store, and which stored things it refers to."""

    store: bool = False
    previous_response_id: str = ""
    conversation: str = ""
    """The id of the conversation that the request belongs to."""
    references: tuple[str, ...] = ()
    """Ids of stored items that the input refers to."""
    background: bool = False
    compaction: bool = False
    """Does the input end with a `compaction_trigger`?"""

    @property
    def refers_to_stored(self) -> bool:
        return bool(self.previous_response_id or self.conversation or self.references)


# --- a quick look -----------------------------------------------------------------------------------------------------


class _ItemPeek(Struct, gc=False):
    type: Json = None
    role: Json = False
    """False if there is none."""


class _RequestPeek(Peek, frozen=True, gc=False):
    store: Json = None
    previous_response_id: Json = None
    conversation: Json = None
    background: Json = None
    input: list[_ItemPeek] | str | None = None


peek_request = partial_decoder(_RequestPeek)
"""Reads from a body the keys that routing needs and those that `is_stateless` needs, in one pass. None where one of
them has an unexpected type. Agents send long bodies with every turn, so nothing else is decoded."""
_peek_item_type = attrgetter("type")


def is_stateless(request: Peek) -> bool:
    """Is it certain that the request stores nothing and refers to nothing? False where this is not certain."""
    if type(request) is not _RequestPeek or request.store is not False:
        return False
    if request.previous_response_id or request.conversation or request.background:
        return False
    if request.input.__class__ is not list:
        return True
    types = list(map(_peek_item_type, request.input))
    if ITEM_REFERENCE in types or COMPACTION_TRIGGER in types:
        return False
    return None not in types or not any(item.type is None and item.role is False for item in request.input)


# --- the whole request ------------------------------------------------------------------------------------------------


def read_state_options(body: Object) -> StateOptions | Failure:
    """The options of a request; a failure, in OpenAI's words, if they are wrong. Null is the same as absent."""
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    store, background = body.get("store"), body.get("background")
    if isinstance(conversation, dict):
        conversation = conversation.get("id", conversation)
    failures = (
        _check_type(previous, str, "previous_response_id", "a string"),
        _check_type(conversation, str, "conversation", "a string"),
        _check_type(store, bool, "store", "a boolean"),
        _check_type(background, bool, "background", "a boolean"),
        _check_conflicts(previous, conversation, store, background),
        _check_input(body.get("input")),
    )
    failure = next((failure for failure in failures if failure is not None), None)
    if failure is not None:
        return failure
    items = read_input_items(body)
    return StateOptions(
        store=store is not False,
        previous_response_id=previous or "",
        conversation=conversation or "",
        references=tuple(dict.fromkeys(item["id"] for item in items if is_reference(item))),
        background=background is True,
        compaction=bool(items) and items[-1].get("type") == COMPACTION_TRIGGER,
    )


def find_references(items: list[Object]) -> tuple[str, ...] | Failure:
    """The ids of the items that these refer to."""
    options = read_state_options({"input": items})
    return options if isinstance(options, Failure) else options.references


def _check_type(value: Json, kind: type, key: str, phrase: str) -> Failure | None:
    return None if value is None or isinstance(value, kind) else wrong_type_failure(key, phrase, value)


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
        if has_reference_type(item) and not (isinstance(item.get("id"), str) and item["id"]):
            return wrong_type_failure(f"input[{number}].id", "a string", item.get("id"))
        if item.get("type") == COMPACTION_TRIGGER and number < len(value) - 1:
            return invalid_request_failure(
                "A 'compaction_trigger' must be the last item of 'input'.", f"input[{number}]"
            )
    return None
