"""Errors: `{"error": {code, message, status, details}}`, as a body and in a stream.

Source: the Python SDK `google-genai` 3.1.0, the protos of `google-ai-generativelanguage` 0.12.1 and Vertex AI's
discovery document of 2026-11-06, looked up in November 2026."""

from __future__ import annotations

import re
from collections.abc import Mapping

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import (
    GATEWAY_CODES,
    MAX_WAIT,
    OVERFLOW_KINDS,
    bound_wait,
    failure_kind_for_status,
    is_context_overflow,
    is_used_up,
    read_retry_after,
    read_retry_after_message,
    read_unshaped_error,
    word_overflow,
    write_retry_headers,
)
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure, Origin
from toolwire.core.json_values import Json, Malformed, Object, Path, encode_text
from toolwire.protocols.gemini.names import NAME, is_own

STATUS_BY_KIND = {
    "invalid": (400, "INVALID_ARGUMENT"),
    "context": (400, "INVALID_ARGUMENT"),
    "authentication": (401, "UNAUTHENTICATED"),
    "billing": (403, "PERMISSION_DENIED"),
    "permission": (403, "PERMISSION_DENIED"),
    "not_found": (404, "NOT_FOUND"),
    "timeout": (408, "DEADLINE_EXCEEDED"),
    "conflict": (409, "ABORTED"),
    "too_large": (413, "INVALID_ARGUMENT"),
    "unprocessable": (400, "INVALID_ARGUMENT"),
    "rate": (429, "RESOURCE_EXHAUSTED"),
    "quota": (429, "RESOURCE_EXHAUSTED"),
    "cancelled": (499, "CANCELLED"),
    "server": (500, "INTERNAL"),
    "upstream": (502, "INTERNAL"),
    "overloaded": (503, "UNAVAILABLE"),
    "deadline": (504, "DEADLINE_EXCEEDED"),
}
"""The HTTP status and Google's status name that are written for each kind of failure."""

KIND_BY_STATUS_NAME: Mapping[str, str] = {
    **{name: kind for kind, (_, name) in reversed(STATUS_BY_KIND.items())},
    "PERMISSION_DENIED": "permission",
    "DEADLINE_EXCEEDED": "deadline",
    "FAILED_PRECONDITION": "invalid",
    "OUT_OF_RANGE": "invalid",
    "UNIMPLEMENTED": "invalid",
    "ALREADY_EXISTS": "conflict",
    "UNKNOWN": "server",
    "DATA_LOSS": "server",
}
"""The kind of failure that each of Google's status names stands for."""

CONTEXT_OVERFLOW = "The input token count exceeds the maximum number of tokens allowed"
_COUNTED_OVERFLOW = "The input token count ({used}) exceeds the maximum number of tokens allowed ({limit})."
_OWN_OVERFLOW = re.compile(r"input token count.{0,40}exceeds the maximum", re.IGNORECASE)
"""Google's own words, by which clients recognise an overflow."""
_RPC_TYPE_PREFIX = "type.googleapis.com/google.rpc."
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s?")


def read_error(body: Json, status: int, headers: Mapping[str, str], path: Path = None) -> Failure:
    """A failure from a body of any shape: Google's error, one in an array, or the page of a proxy."""
    node = body
    if isinstance(node, list) and node:
        node, path = node[0], (path, 0)
    error = node.get("error") if isinstance(node, dict) else None
    origin = Origin(NAME, path, body)
    retry_after = read_retry_after(headers)
    if not isinstance(error, dict):
        kind = failure_kind_for_status(status) if status >= 400 else "upstream"
        return Failure(kind, read_unshaped_error(node, status), status, retry_after=retry_after, origin=origin)
    status_name = str(error.get("status") or "")
    code = error.get("code")
    if not status and isinstance(code, int) and 400 <= code < 600:
        status = code
    message = str(error.get("message") or status_name or f"the provider answered with status {status}")
    retry_after = read_retry_after_message(message) if retry_after is None else retry_after
    listed = error.get("details")
    details = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    delays = [item["retryDelay"] for item in details if isinstance(item.get("retryDelay"), str)]
    seconds = next((bound_wait(float(match[1])) for match in map(_DURATION.fullmatch, delays) if match), retry_after)
    violations = [rows[0] for item in details if isinstance(rows := item.get("fieldViolations"), list) and rows]
    param = next((str(row.get("field") or "") for row in violations if isinstance(row, dict)), "")
    kind = _failure_kind(status_name, status, message, details)
    if kind == "quota" and seconds is not None and seconds <= MAX_WAIT:
        seconds = None  # Google also says so where the quota of a day is used up
    return Failure(kind, message, status, status_name, param, seconds, origin)


def _failure_kind(status_name: str, status: int, message: str, details: list[Object]) -> str:
    kind = KIND_BY_STATUS_NAME.get(status_name) or failure_kind_for_status(status)
    if kind == "invalid":
        if any(item.get("reason") == "API_KEY_INVALID" for item in details):
            return "authentication"
        if is_context_overflow(message):
            return "context"
        return "too_large" if status == 413 else kind
    if kind in OVERFLOW_KINDS and is_context_overflow(message):
        return "context"
    if kind == "rate" and any("PerDay" in encode_text(item) for item in details):
        return "quota"
    return kind


def write_error(failure: Failure) -> ErrorReply:
    status, origin = _error_status(failure), failure.origin
    headers = write_retry_headers(failure)
    if is_own(origin) and origin.intact:
        body = origin.wire[0] if isinstance(origin.wire, list) and origin.wire else origin.wire
        if isinstance(body, dict) and isinstance(body.get("error"), dict):
            return ErrorReply(failure.status or status, origin.wire, headers)
    return ErrorReply(status, write_error_body(failure), headers)


def write_error_body(failure: Failure) -> Object:
    status = _error_status(failure)
    message = failure.message
    if failure.kind == "context" and not _OWN_OVERFLOW.search(message):
        message = word_overflow(message, _COUNTED_OVERFLOW, CONTEXT_OVERFLOW)
    status_name = STATUS_BY_KIND.get(failure.kind, STATUS_BY_KIND["server"])[1]
    if KIND_BY_STATUS_NAME.get(failure.code) == failure.kind:
        status_name = failure.code
    error: Object = {"code": status, "message": message, "status": status_name}
    details: dict[str, Object] = {}
    if failure.param:
        details["BadRequest"] = {"fieldViolations": [{"field": failure.param, "description": message}]}
    if failure.code in GATEWAY_CODES:
        details["ErrorInfo"] = {
            "reason": failure.code.upper(),
            "domain": "toolwire",
            "metadata": {"code": failure.code},
        }
    if failure.retry_after is not None:
        details["RetryInfo"] = {"retryDelay": f"{failure.retry_after:g}s"}
    if failure.kind == "quota" or is_used_up(failure):  # after anything else Gemini CLI tries again
        details["QuotaFailure"] = {"violations": [{"quotaId": "GenerateRequestsPerDay"}]}
    if details:
        error["details"] = [{"@type": f"{_RPC_TYPE_PREFIX}{name}", **detail} for name, detail in details.items()]
    return {"error": error}


def _error_status(failure: Failure) -> int:
    kind_status = STATUS_BY_KIND.get(failure.kind, (STATUS_BY_FAILURE_KIND.get(failure.kind, 500), ""))[0]
    status = failure.status
    fits = status >= 400 and failure_kind_for_status(status) == failure.kind
    return status if fits and status != 529 else kind_status  # 529 is Anthropic's


def unreadable_stream(error: Malformed) -> Failure:
    """The failure for a stream that cannot be read."""
    return Failure("upstream", f"the provider's stream cannot be read: {error}", 502, "invalid_stream")
