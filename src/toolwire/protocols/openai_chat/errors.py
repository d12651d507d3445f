"""Chat errors, as a body or in a stream, of OpenAI and of compatible servers: read as failures, and written.

Source: the types of the Python SDK `openai` 3.49.0 and OpenAI's OpenAPI document of 2026-08-21, looked up in November
2026; what compatible servers do differently is from recorded traffic and the conformance cases."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import (
    CONTEXT_CODE,
    GATEWAY_CODES,
    OVERFLOW_KINDS,
    failure_kind_for_status,
    is_context_overflow,
    is_used_up,
    read_retry_after,
    read_retry_after_message,
    read_unshaped_error,
    text_field,
    word_overflow,
    write_retry_headers,
)
from toolwire.core.ir import EMPTY_MAPPING, STATUS_BY_FAILURE_KIND, Failure, Origin
from toolwire.core.json_values import Json, Object, encode_text
from toolwire.core.provenance import is_verbatim
from toolwire.protocols.openai_chat.names import NAME

ERROR_BY_KIND: Mapping[str, tuple[str, str | None]] = {
    "invalid": ("invalid_request_error", None),
    "context": ("invalid_request_error", CONTEXT_CODE),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "billing": ("insufficient_quota", "credit_balance_exhausted"),
    "permission": ("invalid_request_error", "permission_denied"),
    "not_found": ("invalid_request_error", "model_not_found"),
    "timeout": ("server_error", "timeout"),
    "conflict": ("invalid_request_error", None),
    "too_large": ("invalid_request_error", "request_too_large"),
    "unprocessable": ("invalid_request_error", None),
    "rate": ("requests", "rate_limit_exceeded"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "cancelled": ("server_error", None),
    "server": ("server_error", None),
    "upstream": ("upstream_error", None),
    "overloaded": ("service_unavailable_error", "server_is_overloaded"),
    "deadline": ("server_error", "deadline_exceeded"),
}
"""The `type` and the `code` that are written for each kind; without a code the failure's own is written."""

KIND_BY_CODE: Mapping[str, str] = {code: kind for kind, (_, code) in ERROR_BY_KIND.items() if code} | {
    "invalid_authentication": "authentication", "authentication_error": "authentication",
    "permission_error": "permission", "DeploymentNotFound": "not_found", "not_found_error": "not_found",
    "credit_balance_exhausted": "quota", "organization_usage_limit_exceeded": "quota",
    "billing_hard_limit_reached": "quota", "rate_limit_error": "rate", "slow_down": "rate",
    "service_unavailable_error": "overloaded", "overloaded_error": "overloaded", "server_error": "server",
    "upstream_error": "upstream", "invalid_request_error": "invalid", "content_filter": "invalid",
}  # fmt: skip
"""The kind of failure that a `code` or `type` stands for: those that are written, and those that are only read."""

_COUNTED_OVERFLOW = (
    "This model's maximum context length is {limit} tokens. However, your messages resulted in {used} tokens. Please "
    "reduce the length of the messages."
)
_OVERFLOW = "Your input exceeds the context window of this model. Please reduce the length of the messages."
"""OpenAI's own words, by which clients recognise an overflow."""
_OWN_OVERFLOW = re.compile(
    r"maximum context length is \d+ tokens|exceeds the context window|reduce the length of the messages"
)


def read_failure(body: Json, status: int, headers: Mapping[str, str] = EMPTY_MAPPING) -> Failure:
    """A failure from a body of any shape."""
    error = _find_error_object(body)
    message = text_field(error, "message") or text_field(error, "detail") or text_field(error, "error")
    code, type_ = text_field(error, "code"), text_field(error, "type")
    if not 400 <= status < 600:
        numbers = (_read_number(error.get(key)) for key in ("status_code", "status", "code"))
        status = next((number for number in numbers if 400 <= number < 600), 0)
    message = message or read_unshaped_error(body, status)
    retry_after = read_retry_after(headers)
    return Failure(
        _failure_kind(code, type_, message, status),
        message,
        status,
        code or (type_ if type_ != "invalid_request_error" else ""),
        text_field(error, "param"),
        read_retry_after_message(message) if retry_after is None else retry_after,
        Origin(NAME, None, body) if isinstance(body, dict) and "error" in body else None,
    )


def _find_error_object(body: Json) -> Object:
    """The error object: under `error`, in a list of one (Gemini's compatible endpoint), or the body itself."""
    if isinstance(body, list) and body:
        return _find_error_object(body[0])
    if not isinstance(body, dict):
        return {}
    error = body.get("error", body)
    if isinstance(error, str):
        return {**body, "message": body.get("message") or error}
    return error if isinstance(error, dict) else body


def _read_number(value: Json) -> int:
    is_number = isinstance(value, str) and len(value) == 3 and value.isdecimal()
    return value if isinstance(value, int) else int(value) if is_number else 0


def _failure_kind(code: str, type_: str, message: str, status: int) -> str:
    kind = KIND_BY_CODE.get(code) or (
        "quota" if code.endswith("_spend_limit_exceeded") else KIND_BY_CODE.get(type_, "")
    )
    if kind in ("", "invalid") or (kind == "server" and status > 500):
        # `invalid_request_error` comes with almost every status, `server_error` with those above 500: the status
        # says more.
        kind = (failure_kind_for_status(status) if status else kind) or "server"
    if kind == "quota" and status == 402:
        return "billing"
    if kind in OVERFLOW_KINDS and code != "content_filter" and is_context_overflow(f"{type_} {message}"):
        return "context"
    return kind


def write_error_body(failure: Failure) -> Object:
    """The error object, the same as a body and in a stream."""
    if is_verbatim(failure.origin, NAME):
        wire: Object = failure.origin.wire  # type: ignore[union-attr]
        error = wire.get("error")
        # opencode tries again after every error with `rate_limit` in it.
        is_shown = failure.kind == "quota" and "rate_limit" not in encode_text(wire)
        if is_used_up(failure) and isinstance(error, dict) and not is_shown:
            type_, code = ERROR_BY_KIND["quota"]
            return {**wire, "error": {**error, "type": type_, "code": code}}
        if failure.kind != "context" or (isinstance(error, dict) and error.get("code") == CONTEXT_CODE):
            return wire
        # A compatible server that says it in other words: agents look for OpenAI's.
        given = error if isinstance(error, dict) else {}
        return {**wire, "error": {**given, "message": overflow_message(failure.message), "code": CONTEXT_CODE}}
    kind = "quota" if is_used_up(failure) else failure.kind
    type_, code = ERROR_BY_KIND.get(kind, ERROR_BY_KIND["server"])
    own_code = failure.code if failure.origin is None or failure.origin.protocol == NAME else ""
    if failure.origin is None and (failure.kind == "not_found" or failure.code in GATEWAY_CODES):
        code = None  # the gateway says itself what was not found (not always a model), and what it cannot do
    message = overflow_message(failure.message) if failure.kind == "context" else failure.message
    fields = {"message": message, "type": type_, "param": failure.param or None}
    return {"error": fields | {"code": code or own_code or None}}


def overflow_message(message: str) -> str:
    return message if _OWN_OVERFLOW.search(message) else word_overflow(message, _COUNTED_OVERFLOW, _OVERFLOW)


_ERROR_STATUSES = frozenset((400, 401, 402, 403, 404, 405, 408, 409, 413, 415, 422, 426, 429, 499, 500, 502, 503, 504))


USED_UP_STATUS = 403
"""For a limit that opens late, as DashScope and GitHub have it: after 429 agents of this protocol only wait."""


def write_error(failure: Failure) -> ErrorReply:
    has_status = failure.status in _ERROR_STATUSES and failure.kind != "context"
    status = failure.status if has_status else STATUS_BY_FAILURE_KIND.get(failure.kind, 500)
    if is_used_up(failure):
        status = USED_UP_STATUS
    return ErrorReply(status, write_error_body(failure), write_retry_headers(failure))
