"""What the modules of the Responses state share: one request to an endpoint for stored objects, its results as pages,
and questions about a request's target."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl

from msgspec import Struct

from toolwire.core.ir import Failure
from toolwire.core.json_values import Malformed, Object, decode, encode, expect_object
from toolwire.gateway.pipeline import error_replies
from toolwire.gateway.pipeline.gateway_request import GatewayRequest, Reply, StreamReplay
from toolwire.gateway.pipeline.headers import JSON_HEADERS
from toolwire.gateway.pipeline.pipeline import Pipeline
from toolwire.gateway.pipeline.route import Target, choose_codec
from toolwire.gateway.responses_state.background import BackgroundJobs
from toolwire.gateway.responses_state.response_objects import not_found_failure, write_listed_item
from toolwire.gateway.server.request_body import peek_body
from toolwire.gateway.store.repository import StateRepository, no_store_failure, owner_of, store_unavailable_failure
from toolwire.gateway.store.store import StoreDown
from toolwire.protocols.openai_responses.errors import invalid_request_failure, wrong_type_failure

# --- calls ------------------------------------------------------------------------------------------------------------


def replace_body(call: GatewayRequest, body: Object, stream: bool = False) -> None:
    """Continue as if the client had sent this body."""
    call.body = encode({**body, "stream": True} if stream else body)
    call.peek = peek_body(call.body) or call.peek


def is_native_target(call: GatewayRequest, targets: tuple[Target, ...]) -> bool:
    """Does the first provider speak Responses, so that it may store things itself?"""
    target = targets[0]
    codec = choose_codec(target, call.client_codec, call.has_tools)
    return codec.name == call.client_codec.name and not target.provider.embedded


def allows_upstream_state(call: GatewayRequest) -> bool:
    """May clients refer to what the provider stores? Not if several gateway keys share the provider's account: one
    client could read what another has stored."""
    return not call.runtime.config.server.keys


# --- operations -------------------------------------------------------------------------------------------------------

OperationName: TypeAlias = Literal[
    "response", "response-delete", "response-cancel", "response-items", "compact",
    "conversation-create", "conversation", "conversation-update", "conversation-delete",
    "items", "items-add", "item", "item-delete",
]  # fmt: skip


class StateOperation(Struct, frozen=True, kw_only=True):
    """What a request to an endpoint for stored things asks for."""

    name: OperationName
    id: str = ""
    """The id of the response or conversation."""
    item_id: str = ""


class NotStoredHere(Struct, frozen=True):
    """The gateway does not have it, but the provider may: the request is passed on."""


OperationResult: TypeAlias = Reply | StreamReplay | NotStoredHere
Value = TypeVar("Value")


class OperationRefused(Exception):
    """An operation cannot be done; the request gets this result instead."""

    def __init__(self, result: Reply | NotStoredHere) -> None:
        self.result = result


class Page(Struct, frozen=True, kw_only=True):
    """Which part of a list a client asks for."""

    after: str = ""
    limit: int = 20
    descending: bool = True


class OperationContext:
    """One request to an endpoint for stored things."""

    def __init__(
        self,
        repository: StateRepository,
        jobs: BackgroundJobs,
        pipeline: Pipeline,
        call: GatewayRequest,
        operation: StateOperation,
        query: str,
    ) -> None:
        self.repository = repository
        self.jobs = jobs
        self.pipeline = pipeline
        self.call = call
        self.operation = operation
        self.owner = owner_of(call.caller.key)
        self.query: Mapping[str, str] = dict(parse_qsl(query, keep_blank_values=True))

    def set_body(self, body: bytes) -> None:
        """Set the body of the request; raises if it is not valid."""
        self.call.id_seed = secrets.token_hex(12)
        if body and not self.call.load_body(body):
            self._decode_body(body)
            raise self.refusal(Failure("invalid", "`model` must be a string and `stream` true or false", 400))

    def read_body(self) -> Object:
        return self._decode_body(self.call.body or b"{}")

    def _decode_body(self, body: bytes) -> Object:
        try:
            return expect_object(decode(body, max_bytes=len(body)), None)
        except Malformed as bad:
            raise self.refusal(Failure("invalid", str(bad), 400, param=bad.path)) from None

    def refusal(self, failure: Failure) -> OperationRefused:
        return OperationRefused(error_replies.error_reply(self.call.client_codec, failure))

    def missing_object(self, kind: Literal["response", "conversation"], id: str) -> OperationRefused:
        provider = self.call.runtime.router.find_speaker(self.call.client_codec.name)
        if provider is not None and allows_upstream_state(self.call):
            return OperationRefused(NotStoredHere())
        return self.refusal(not_found_failure(kind, id))

    def unwrap(self, result: Value | Failure | StoreDown) -> Value:
        """The result of a check or of the store; raises if it is a failure."""
        if isinstance(result, StoreDown):
            result = store_unavailable_failure(result) if self.repository.is_enabled else no_store_failure(404)
        if isinstance(result, Failure):
            raise self.refusal(result)
        return result

    def list_items(self, items: list[Object], page: Page) -> Reply:
        """The part of a list that the client asks for."""
        ordered = items[::-1] if page.descending else items
        if page.after:
            place = next((number for number, item in enumerate(ordered) if item.get("id") == page.after), None)
            if place is None:
                raise self.refusal(not_found_failure("item", page.after))
            ordered = ordered[place + 1 :]
        shown = ordered[: page.limit]
        return Reply(200, JSON_HEADERS, encode(write_page(shown, len(ordered) > len(shown))))


# --- lists ------------------------------------------------------------------------------------------------------------

_ORDERS: Mapping[str, bool] = MappingProxyType({"desc": True, "asc": False})
_MAX_PAGE_SIZE = 100


def read_page(query: Mapping[str, str]) -> Page | Failure:
    text = query.get("limit", str(Page().limit))
    try:
        limit = int(text)
    except ValueError:
        return wrong_type_failure("limit", "an integer", text)
    if limit > _MAX_PAGE_SIZE:
        expected = f"Expected a value <= {_MAX_PAGE_SIZE}, but got {limit} instead."
        message = f"Invalid 'limit': integer above maximum value. {expected}"
        return invalid_request_failure(message, "limit", "integer_above_max_value")
    if limit < 1:
        message = f"Invalid 'limit': integer below minimum value. Expected a value >= 1, but got {limit} instead."
        return invalid_request_failure(message, "limit", "integer_below_min_value")
    order = query.get("order", "desc")
    if order not in _ORDERS:
        message = f"Invalid value: '{order}'. Supported values are: 'asc' and 'desc'."
        return invalid_request_failure(message, "order", "invalid_value")
    return Page(after=query.get("after", ""), limit=limit, descending=_ORDERS[order])


def write_page(items: list[Object], has_more: bool) -> Object:
    first, last = (items[0], items[-1]) if items else ({}, {})
    return {
        "object": "list",
        "data": [write_listed_item(item) for item in items],
        "first_id": first.get("id") or "",
        "last_id": last.get("id") or "",
        "has_more": has_more,
    }
