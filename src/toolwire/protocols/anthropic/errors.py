"""Errors, whole and inside a stream: the same body in both places."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import failure_kind_for_status, read_retry_after, write_retry_after
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure
from toolwire.core.json_values import Json, Object
from toolwire.core.provenance import ReadContext, is_verbatim
from toolwire.protocols.anthropic.names import (
    CONTEXT_OVERFLOW,
    CONTEXT_OVERFLOWS,
    ERROR_BODY_KEYS,
    ERROR_BY_KIND,
    KIND_BY_ERROR_TYPE,
    NAME,
)


def read_error(body: Json, status: int, headers: Mapping[str, str]) -> Failure:
    """Whatever came instead of an answer: an error of this wire, or a page of something in between."""
    reading = ReadContext(NAME)
    retry_after = read_retry_after(headers)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        message = error if isinstance(error, str) else body if isinstance(body, str) else ""
        said = message.strip()[:2000] or f"the provider answered with status {status} and no explanation"
        kind = failure_kind_for_status(status)
        return Failure(
            kind,
            said,
            status or STATUS_BY_FAILURE_KIND[kind],
            retry_after=retry_after,
            origin=reading.whole_origin(body, None),
        )
    given = error.get("type")
    word = given if isinstance(given, str) else ""
    text = error.get("message")
    message = text if isinstance(text, str) and text else word or "the provider gave no reason"
    kind, usual = KIND_BY_ERROR_TYPE.get(word, (failure_kind_for_status(status), status))
    if kind in ("invalid", "too_large") and any(words in message.lower() for words in CONTEXT_OVERFLOWS):
        kind = "context"
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return Failure(
        kind,
        message,
        status if status >= 400 else usual or STATUS_BY_FAILURE_KIND[kind],
        code if isinstance(code, str) else word,
        retry_after=retry_after,
        origin=reading.read_origin(body, None, ERROR_BODY_KEYS),
    )


def write_error(failure: Failure) -> ErrorReply:
    word, usual = ERROR_BY_KIND.get(failure.kind, ("api_error", 500))
    status = _error_status(failure, usual)
    headers = write_retry_after(failure.retry_after)
    origin = failure.origin
    if origin is not None and is_verbatim(origin, NAME) and isinstance(origin.wire, dict) and "error" in origin.wire:
        return ErrorReply(status, origin.wire, headers)
    return ErrorReply(status, write_error_body(failure, word), headers)


def write_error_body(failure: Failure, error_type: str) -> Object:
    message = failure.message or failure.code or error_type
    if failure.kind == "context" and CONTEXT_OVERFLOW not in message.lower():
        # Agents shorten their history when they meet these words.
        message = f"{CONTEXT_OVERFLOW}: {message}"
    error: Object = {"type": error_type, "message": message}
    if failure.code and failure.code not in KIND_BY_ERROR_TYPE:
        error["details"] = {"error_code": failure.code}
    return {"type": "error", "error": error}


def _error_status(failure: Failure, default: int) -> int:
    """The status decides which exception a client raises, so it must suit the kind."""
    given = failure.status
    if failure.kind in ("server", "upstream", "deadline", "timeout", "cancelled"):
        return given if 400 <= given < 600 else default
    if failure.kind == "invalid" and given >= 400 and failure_kind_for_status(given) == "invalid":
        return given
    return default
