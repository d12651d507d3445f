"""Errors: the same object as a body and in a stream.

Source: the types of the Python SDK `anthropic` 2.8.0 and Anthropic's pages (copies of 2026-08-22), looked up in
November 2026."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import (
    CONTEXT_CODE,
    OVERFLOW_KINDS,
    failure_kind_for_status,
    is_context_overflow,
    read_retry_after,
    read_retry_after_message,
    read_unshaped_error,
    text_field,
    write_retry_headers,
)
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure
from toolwire.core.json_values import Json, Object
from toolwire.core.provenance import ReadContext
from toolwire.protocols.anthropic.names import ERROR_BODY_KEYS, NAME, intact_wire, is_own

KIND_BY_ERROR_TYPE: Mapping[str, tuple[str, int]] = {
    "invalid_request_error": ("invalid", 400),
    "authentication_error": ("authentication", 401),
    "billing_error": ("billing", 402),
    "permission_error": ("permission", 403),
    "not_found_error": ("not_found", 404),
    "conflict_error": ("conflict", 409),
    "request_too_large": ("too_large", 413),
    "rate_limit_error": ("rate", 429),
    "api_error": ("server", 500),
    "timeout_error": ("deadline", 504),
    "overloaded_error": ("overloaded", 529),
}
"""Anthropic's error types, each with its kind of failure and its HTTP status."""

ERROR_BY_KIND: Mapping[str, tuple[str, int]] = {
    **{kind: (error_type, status) for error_type, (kind, status) in KIND_BY_ERROR_TYPE.items()},
    "context": ("invalid_request_error", 400),
    "unprocessable": ("invalid_request_error", 400),
    "timeout": ("timeout_error", 408),
    "quota": ("rate_limit_error", 429),
    "cancelled": ("api_error", 499),
    "upstream": ("api_error", 502),
}
"""The error type and the HTTP status that are written for each kind of failure."""

CONTEXT_OVERFLOW = "prompt is too long"
"""How Anthropic says that a prompt does not fit: only in the message, there is no error type for it."""


MISSING_TURNS = "previous_response_not_found"
THREAD_NOT_FOUND = "thread_not_found"
"""The code for a `thread` that the provider does not have, in place of OpenAI's MISSING_TURNS: Anthropic's tool runner
waits for it, and then sends the whole conversation."""


def read_error(body: Json, status: int, headers: Mapping[str, str]) -> Failure:
    """A failure from a body of any shape: Anthropic's error, or the page of a proxy."""
    reading = ReadContext(NAME)
    retry_after = read_retry_after(headers)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        message, kind = read_unshaped_error(body, status), failure_kind_for_status(status)
        status = status or STATUS_BY_FAILURE_KIND[kind]
        return Failure(kind, message, status, retry_after=retry_after, origin=reading.whole_origin(body, None))
    error_type, message = text_field(error, "type"), text_field(error, "message")
    message = message or error_type or "the provider gave no reason"
    retry_after = read_retry_after_message(message) if retry_after is None else retry_after
    kind, usual_status = KIND_BY_ERROR_TYPE.get(error_type, (failure_kind_for_status(status), status))
    if kind in OVERFLOW_KINDS and is_context_overflow(message):
        kind = "context"
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return Failure(
        kind,
        message,
        status if status >= 400 else usual_status or STATUS_BY_FAILURE_KIND[kind],
        code if isinstance(code, str) else error_type,
        retry_after=retry_after,
        origin=reading.read_origin(body, None, ERROR_BODY_KEYS),
    )


def write_error(failure: Failure) -> ErrorReply:
    if failure.code == MISSING_TURNS and not is_own(failure.origin):
        failure = replace(failure, kind="not_found", code=THREAD_NOT_FOUND, status=404)
    error_type, usual_status = ERROR_BY_KIND.get(failure.kind, ERROR_BY_KIND["server"])
    body = intact_wire(failure.origin)
    if body is None or "error" not in body:
        message = failure.message or failure.code or error_type
        if failure.kind == "context" and CONTEXT_OVERFLOW not in message.lower():
            # Claude Code shortens its history when it reads these words. Where Anthropic's numbers follow them directly
            # (`N tokens > M maximum`), it was seen to end instead in a short conversation.
            message = f"{CONTEXT_OVERFLOW}: {message}"
        error: Object = {"type": error_type, "message": message}
        if failure.code and failure.code not in KIND_BY_ERROR_TYPE and failure.code != CONTEXT_CODE:
            error["details"] = {"error_code": failure.code}
        body = {"type": "error", "error": error}
    return ErrorReply(_error_status(failure, usual_status), body, write_retry_headers(failure))


def _error_status(failure: Failure, usual_status: int) -> int:
    """Anthropic's SDKs choose the exception by the status, so it must suit the kind."""
    status = failure.status
    if failure.kind in ("server", "upstream", "deadline", "timeout", "cancelled"):
        return status if 400 <= status < 600 else usual_status
    if failure.kind == "invalid" and status >= 400 and failure_kind_for_status(status) == "invalid":
        return status
    return usual_status
