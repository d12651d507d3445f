"""Responses errors: the HTTP error body, the `error` of a failed answer, and the last event of a failed stream.

Source: the types of the Python SDK `openai` 3.49.0 and OpenAI's OpenAPI document of 2026-08-21, looked up in November
2026."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import (
    CONTEXT_CODE,
    FAILURE_KIND_BY_STATUS,
    GATEWAY_CODES,
    OVERFLOW_KINDS,
    is_context_overflow,
    is_used_up,
    read_retry_after,
    read_retry_after_message,
    read_unshaped_error,
    word_overflow,
    write_retry_headers,
)
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure, Origin
from toolwire.core.json_values import Json, Object, Path
from toolwire.protocols.openai_responses.names import NAME, intact_wire, is_own

USED_UP = "usage_limit_reached"
"""The type of an error that Codex shows at once: the service behind ChatGPT has it for a limit that opens late."""

ERROR_BY_KIND: Mapping[str, tuple[str, str]] = {
    "context": ("invalid_request_error", CONTEXT_CODE),
    "authentication": ("invalid_request_error", "invalid_api_key"),
    "billing": ("insufficient_quota", "insufficient_quota"),
    "quota": ("insufficient_quota", "insufficient_quota"),
    "rate": ("rate_limit_error", "rate_limit_exceeded"),
    "overloaded": ("service_unavailable_error", "server_is_overloaded"),
    **dict.fromkeys(("server", "upstream", "deadline", "timeout", "cancelled"), ("server_error", "")),
}
"""The `type` and `code` that are written for each kind; every other kind is an invalid request."""

KIND_BY_CODE: Mapping[str, str] = {code: kind for kind, (_, code) in ERROR_BY_KIND.items() if code} | {
    "string_above_max_length": "invalid",
    "slow_down": "rate",
    "credit_balance_exhausted": "quota",
    "organization_usage_limit_exceeded": "quota",
    USED_UP: "quota",
    "billing_hard_limit_reached": "billing",
    "server_error": "server",
    "vector_store_timeout": "timeout",
    "invalid_prompt": "invalid",
    "model_not_found": "not_found",
    "previous_response_not_found": "not_found",
}
"""The kind of failure that a code stands for: those that are written, and those that are only read. A code is trusted
before the status."""

KIND_BY_TYPE: Mapping[str, str] = {
    "invalid_request_error": "invalid",
    "authentication_error": "authentication",
    "permission_error": "permission",
    "not_found_error": "not_found",
    "rate_limit_error": "rate",
    "requests": "rate",
    "tokens": "rate",
    "insufficient_quota": "quota",
    "service_unavailable_error": "overloaded",
    "server_error": "server",
    "api_error": "server",
}

VAGUE_STATUSES = frozenset({0, 200, 400, 500})
"""Statuses that say less than the error's `type`."""

STREAM_CODE_BY_KIND: Mapping[str, str] = {
    "context": CONTEXT_CODE,
    "rate": "rate_limit_exceeded",
    "quota": "insufficient_quota",
    "billing": "insufficient_quota",
    **dict.fromkeys(
        ("invalid", "too_large", "unprocessable", "not_found", "authentication", "permission"), "invalid_prompt"
    ),
}
"""The codes by which Codex decides whether to try again. All other kinds are `server_error`, after which it does. After
`server_is_overloaded` it gives up at once, but at other providers an overload lasts only moments."""

OVERFLOW = "Your input exceeds the context window of this model. Please adjust your input and try again."
_OWN_OVERFLOW = re.compile(r"exceeds the context window|maximum context length is \d+ tokens")

DEFAULT_RETRY_AFTER = 5.0
"""Seconds to wait after a rate limit error without `retry-after`: without a time Codex gives up."""

ERROR_STATUSES = frozenset({400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 426, 429, 500, 502, 503, 504})


def read_error(body: Json, status: int, headers: Mapping[str, str]) -> Failure:
    return read_error_body(body, status, None, read_retry_after(headers))


def read_error_body(body: Json, status: int, path: Path, retry_after: float | None = None) -> Failure:
    """A failure from an error body of any shape: nested, flat, a bare text or nothing."""
    node = body.get("error") if isinstance(body, dict) else None
    if not isinstance(node, dict):
        node = body if isinstance(body, dict) else {}
    texts = (_text_field(node, "message"), _text_field(node, "detail"), _text_field(node, "error"))
    message = next(filter(None, texts), "") or read_unshaped_error(body, status)
    code, param = _text_field(node, "code"), _text_field(node, "param")
    kind = _failure_kind(code, _text_field(node, "type"), status, message)
    retry_after = read_retry_after_message(message) if retry_after is None else retry_after
    status = status or STATUS_BY_FAILURE_KIND[kind]
    return Failure(kind, message, status, code, param, retry_after, Origin(NAME, path, body))


def _text_field(node: Object, key: str) -> str:
    value = node.get(key)
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _failure_kind(code: str, error_type: str, status: int, message: str) -> str:
    kind = _declared_kind(code, error_type, status)
    return "context" if kind in OVERFLOW_KINDS and is_context_overflow(f"{error_type} {message}") else kind


def _declared_kind(code: str, error_type: str, status: int) -> str:
    """The kind that the code, the type and the status say."""
    if code in KIND_BY_CODE:
        return KIND_BY_CODE[code]
    if error_type in ("insufficient_quota", USED_UP) or code.endswith("_spend_limit_exceeded"):
        return "quota"
    if status in VAGUE_STATUSES and error_type in KIND_BY_TYPE:
        return KIND_BY_TYPE[error_type]
    if status in FAILURE_KIND_BY_STATUS:
        return FAILURE_KIND_BY_STATUS[status]
    if 400 <= status < 500:
        return "invalid"
    return KIND_BY_TYPE.get(error_type, "server")


# --- errors of Toolwire itself ----------------------------------------------------------------------------------------

_TYPE_NAMES: Mapping[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    str: "a string",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


def invalid_request_failure(message: str, param: str = "", code: str = "") -> Failure:
    """A request that Toolwire itself refuses, with OpenAI's kind of error."""
    return Failure("invalid", message, 400, code, param)


def wrong_type_failure(param: str, wanted: str, value: Json) -> Failure:
    got = _TYPE_NAMES.get(type(value), "a number")
    message = f"Invalid type for '{param}': expected {wanted}, but got {got} instead."
    return invalid_request_failure(message, param, "invalid_type")


def write_error(failure: Failure) -> ErrorReply:
    if failure.kind == "rate" and failure.retry_after is None:
        failure = replace(failure, retry_after=DEFAULT_RETRY_AFTER)
    headers = write_retry_headers(failure)
    has_status = failure.status in ERROR_STATUSES and failure.kind != "context"
    status = failure.status if has_status else STATUS_BY_FAILURE_KIND.get(failure.kind, 500)
    # Codex ends after `insufficient_quota`, too.
    opens_late = failure.retry_after is not None and is_used_up(failure)
    wire = None if opens_late else intact_wire(failure.origin)
    if wire is not None and "error" in wire and "sequence_number" not in wire and not _is_worded_otherwise(failure):
        return ErrorReply(failure.status or status, wire, headers)
    if opens_late:
        return ErrorReply(STATUS_BY_FAILURE_KIND["quota"], {"error": _write_used_up(failure)}, headers)
    if failure.kind == "billing":
        status = STATUS_BY_FAILURE_KIND["quota"]
    type_, code = ERROR_BY_KIND.get(failure.kind, ("invalid_request_error", ""))
    code = failure.code if failure.code in GATEWAY_CODES else code or failure.code
    error = {"message": _message(failure), "type": type_, "param": failure.param or None, "code": code or None}
    return ErrorReply(status, {"error": error}, headers)


def _write_used_up(failure: Failure) -> Object:
    """Codex ends, and says when the limit opens."""
    error: Object = {"message": failure.message, "type": USED_UP, "param": None, "code": USED_UP}
    return error | {"resets_at": failure.opens_at} if failure.opens_at else error


def _message(failure: Failure) -> str:
    """The message, of an overflow in OpenAI's words, by which clients recognise it."""
    if failure.kind != "context" or _OWN_OVERFLOW.search(failure.message):
        return failure.message
    return word_overflow(failure.message, OVERFLOW, OVERFLOW)


def _is_worded_otherwise(failure: Failure) -> bool:
    """Is it the overflow of a compatible server that does not say so with OpenAI's code?"""
    return failure.kind == "context" and failure.code != CONTEXT_CODE


def write_stream_error(failure: Failure) -> Object:
    """The `error` of a failed answer, with the codes and the words "try again in" that Codex reads."""
    message = _message(failure)
    if failure.kind == "rate" and failure.retry_after is not None and "try again in" not in message:
        message = f"{message} Please try again in {failure.retry_after:g}s."
    own_code = failure.code if failure.code in KIND_BY_CODE and is_own(failure.origin) else ""
    return {"code": own_code or STREAM_CODE_BY_KIND.get(failure.kind, "server_error"), "message": message}
