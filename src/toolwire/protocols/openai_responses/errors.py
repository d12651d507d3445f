"""Failures: the HTTP error body, the `error` of a failed answer, and the events that end a stream badly."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.failures import STATUSES, read_wait, told_wait, write_wait
from toolwire.ir import FAILURES, Failure, Origin
from toolwire.protocols.openai_responses.names import NAME
from toolwire.protocols.openai_responses.parts import own
from toolwire.reading import verbatim
from toolwire.room import Sent
from toolwire.wire import Json, Object, Path, encode_text

CODES: Mapping[str, str] = MappingProxyType(
    {
        "context_length_exceeded": "context",
        "string_above_max_length": "invalid",
        "rate_limit_exceeded": "rate",
        "slow_down": "rate",
        "insufficient_quota": "quota",
        "credit_balance_exhausted": "quota",
        "organization_usage_limit_exceeded": "quota",
        "billing_hard_limit_reached": "billing",
        "server_is_overloaded": "overloaded",
        "server_error": "server",
        "vector_store_timeout": "timeout",
        "invalid_prompt": "invalid",
        "invalid_api_key": "authentication",
        "model_not_found": "not_found",
        "previous_response_not_found": "not_found",
    }
)
"""What a code says of the kind of failure; it is trusted before the status."""

TYPES: Mapping[str, str] = MappingProxyType(
    {
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
)

VAGUE = frozenset({0, 200, 400, 500})
"""Statuses that say less than the type of the error does."""

WORDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "context": ("invalid_request_error", "context_length_exceeded"),
        "authentication": ("invalid_request_error", "invalid_api_key"),
        "billing": ("insufficient_quota", "insufficient_quota"),
        "quota": ("insufficient_quota", "insufficient_quota"),
        "rate": ("rate_limit_error", "rate_limit_exceeded"),
        "overloaded": ("service_unavailable_error", "server_is_overloaded"),
        "server": ("server_error", ""),
        "upstream": ("server_error", ""),
        "deadline": ("server_error", ""),
        "timeout": ("server_error", ""),
        "cancelled": ("server_error", ""),
    }
)
"""The type and code that clients look for; every other kind is an invalid request."""

STREAM_CODES: Mapping[str, str] = MappingProxyType(
    {
        "context": "context_length_exceeded",
        "rate": "rate_limit_exceeded",
        "quota": "insufficient_quota",
        "billing": "insufficient_quota",
        "invalid": "invalid_prompt",
        "too_large": "invalid_prompt",
        "unprocessable": "invalid_prompt",
        "not_found": "invalid_prompt",
        "authentication": "invalid_prompt",
        "permission": "invalid_prompt",
    }
)
"""The codes by which agents tell what is worth another try; the rest is `server_error`, which is. They give up at once
when a service says that it is overloaded; other providers say so of moments."""

SOON = 5.0
"""Seconds to wait where a provider that is asked too often does not say how long: agents give up when nobody does."""

SENDABLE = frozenset({400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 426, 429, 500, 502, 503, 504})


# --- reading --------------------------------------------------------------------------------------------------------


def read_error(body: Json, status: int, headers: Mapping[str, str]) -> Failure:
    return failure_of(body, status, None, read_wait(headers), body)


def failure_of(body: Json, status: int, path: Path, wait: float | None = None, wire: Json = None) -> Failure:
    """A failure from whatever a peer calls an error: nested, flat, a bare text or nothing."""
    node = body.get("error") if isinstance(body, dict) else None
    if not isinstance(node, dict):
        node = body if isinstance(body, dict) else {}
    message = _message(node, body)
    code, kind_word = _word(node, "code"), _word(node, "type")
    kind = _kind(code, kind_word, status, message)
    origin = Origin(NAME, path, body if wire is None else wire)
    wait = told_wait(message) if wait is None else wait
    return Failure(kind, message, status or FAILURES[kind], code, _word(node, "param"), wait, origin)


def _message(node: Object, body: Json) -> str:
    for value in (node.get("message"), node.get("detail"), node.get("error"), body):
        if isinstance(value, str) and value:
            return value
    return encode_text(body) if body else "the provider gave no reason"


def _word(node: Object, key: str) -> str:
    value = node.get(key)
    return value if isinstance(value, str) else str(value) if isinstance(value, int) else ""


def _kind(code: str, word: str, status: int, message: str) -> str:
    if code in CODES:
        return CODES[code]
    if word == "insufficient_quota" or code.endswith("_spend_limit_exceeded"):
        return "quota"
    if "maximum context length" in message or "context window" in message:
        return "context"
    if status in VAGUE and word in TYPES:
        return TYPES[word]
    if status in STATUSES:
        return STATUSES[status]
    if 400 <= status < 500:
        return "invalid"
    return TYPES.get(word, "server")


# --- making ---------------------------------------------------------------------------------------------------------

_TYPES: Mapping[type, str] = MappingProxyType(
    {bool: "a boolean", int: "an integer", float: "a decimal", str: "a string", list: "an array", dict: "an object"}
)


def invalid(message: str, param: str = "", code: str = "") -> Failure:
    """What is refused here, as the vendor would."""
    return Failure("invalid", message, 400, code, param)


def wrong_type(param: str, wanted: str, value: Json) -> Failure:
    got = "null" if value is None else _TYPES.get(type(value), "a number")
    return invalid(f"Invalid type for '{param}': expected {wanted}, but got {got} instead.", param, "invalid_type")


# --- writing --------------------------------------------------------------------------------------------------------


def write_error(failure: Failure) -> Sent:
    headers = write_wait(SOON if failure.retry_after is None and failure.kind == "rate" else failure.retry_after)
    status = failure.status if failure.status in SENDABLE else FAILURES.get(failure.kind, 500)
    if verbatim(failure.origin, NAME):
        wire = failure.origin.wire  # type: ignore[union-attr]
        if isinstance(wire, dict) and "error" in wire and "sequence_number" not in wire:
            return Sent(failure.status or status, wire, headers)
    if failure.kind == "billing":
        status = FAILURES["quota"]
    return Sent(status, {"error": error_object(failure)}, headers)


def error_object(failure: Failure) -> Object:
    kind, code = WORDS.get(failure.kind, ("invalid_request_error", ""))
    return {
        "message": failure.message,
        "type": kind,
        "param": failure.param or None,
        "code": code or failure.code or None,
    }


def stream_error(failure: Failure) -> Object:
    """The `error` of a failed answer, in the words that agents know."""
    message = failure.message
    if failure.kind == "rate" and failure.retry_after is not None and "try again in" not in message:
        message = f"{message} Please try again in {failure.retry_after:g}s."
    own_code = failure.code if failure.code in CODES and own(failure.origin) else ""
    return {"code": own_code or STREAM_CODES.get(failure.kind, "server_error"), "message": message}
