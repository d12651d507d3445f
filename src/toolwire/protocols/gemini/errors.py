"""Errors, as whole bodies and as frames of a stream: `{"error": {code, message, status, details}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import failure_kind_for_status, read_retry_after, write_retry_after
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Failure, Origin
from toolwire.core.json_values import Json, Malformed, Object, Path, encode_text
from toolwire.core.provenance import is_verbatim
from toolwire.protocols.gemini.names import NAME

KIND_BY_STATUS_NAME: Mapping[str, str] = MappingProxyType(
    {
        "INVALID_ARGUMENT": "invalid",
        "FAILED_PRECONDITION": "invalid",
        "OUT_OF_RANGE": "invalid",
        "UNIMPLEMENTED": "invalid",
        "UNAUTHENTICATED": "authentication",
        "PERMISSION_DENIED": "permission",
        "NOT_FOUND": "not_found",
        "ABORTED": "conflict",
        "ALREADY_EXISTS": "conflict",
        "RESOURCE_EXHAUSTED": "rate",
        "CANCELLED": "cancelled",
        "INTERNAL": "server",
        "UNKNOWN": "server",
        "DATA_LOSS": "server",
        "UNAVAILABLE": "overloaded",
        "DEADLINE_EXCEEDED": "deadline",
    }
)

STATUS_BY_KIND: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
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
)
"""Every kind with the status and the word that this wire has for it."""

CONTEXT_OVERFLOW = "The input token count exceeds the maximum number of tokens allowed"
_CONTEXT_OVERFLOW = re.compile(
    r"input token count.*exceeds|exceeds the maximum number of (?:input )?tokens|context (?:length|window)",
    re.IGNORECASE,
)
_RPC_TYPE_PREFIX = "type.googleapis.com/google.rpc."
_DURATION = re.compile(r"(\d+(?:\.\d+)?)s?")


def read_error(body: Json, status: int, headers: Mapping[str, str], path: Path = None) -> Failure:
    """Any error body as a failure: this wire's own shape, one in an array, or whatever a proxy in between said."""
    found = body
    if isinstance(found, list) and found:
        found, path = found[0], (path, 0)
    error = found.get("error") if isinstance(found, dict) else None
    origin = Origin(NAME, path, body)
    waits = read_retry_after(headers)
    if not isinstance(error, dict):
        message = error if isinstance(error, str) else _body_text(body)
        kind = failure_kind_for_status(status) if status >= 400 else "upstream"
        return Failure(kind, message or f"the provider answered with status {status}", status, "", "", waits, origin)
    word = str(error.get("status") or "")
    code = error.get("code")
    if not status and isinstance(code, int):
        status = code
    message = str(error.get("message") or word or f"the provider answered with status {status}")
    details = [item for item in error.get("details") or [] if isinstance(item, dict)] if _has_details(error) else []
    delay = next((waited for item in details if (waited := _read_seconds(item.get("retryDelay"))) is not None), waits)
    return Failure(
        _failure_kind(word, status, message, details), message, status, word, _read_param(details), delay, origin
    )


def _has_details(error: Object) -> bool:
    return isinstance(error.get("details"), list)


def _failure_kind(status_name: str, status: int, message: str, details: list[Object]) -> str:
    kind = KIND_BY_STATUS_NAME.get(status_name) or failure_kind_for_status(status)
    if kind == "invalid":
        if any(item.get("reason") == "API_KEY_INVALID" for item in details):
            return "authentication"
        if _CONTEXT_OVERFLOW.search(message):
            return "context"
        return "too_large" if status == 413 else kind
    if kind == "rate" and any("PerDay" in encode_text(item) for item in details):
        return "quota"
    return kind


def _read_param(details: list[Object]) -> str:
    for item in details:
        violations = item.get("fieldViolations")
        if isinstance(violations, list) and violations and isinstance(violations[0], dict):
            return str(violations[0].get("field") or "")
    return ""


def _read_seconds(value: Json) -> float | None:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def _body_text(body: Json) -> str:
    if body is None:
        return ""
    return (body if isinstance(body, str) else encode_text(body)).strip()[:2000]


def write_error(failure: Failure) -> ErrorReply:
    status = _error_status(failure)
    headers = write_retry_after(failure.retry_after)
    if is_verbatim(failure.origin, NAME) and _is_error_body(failure.origin.wire):  # type: ignore[union-attr]
        return ErrorReply(failure.status or status, failure.origin.wire, headers)  # type: ignore[union-attr]
    return ErrorReply(status, write_error_body(failure), headers)


def write_error_body(failure: Failure) -> Object:
    status = _error_status(failure)
    message = failure.message
    if failure.kind == "context" and not _CONTEXT_OVERFLOW.search(message):
        message = f"{CONTEXT_OVERFLOW}: {message}"
    word = (
        failure.code
        if KIND_BY_STATUS_NAME.get(failure.code) == failure.kind
        else STATUS_BY_KIND.get(failure.kind, (500, "INTERNAL"))[1]
    )
    error: Object = {"code": status, "message": message, "status": word}
    details: list[Object] = []
    if failure.param:
        details.append(
            {
                "@type": f"{_RPC_TYPE_PREFIX}BadRequest",
                "fieldViolations": [{"field": failure.param, "description": message}],
            }
        )
    if failure.retry_after is not None:
        details.append({"@type": f"{_RPC_TYPE_PREFIX}RetryInfo", "retryDelay": f"{failure.retry_after:g}s"})
    if failure.kind == "quota":
        details.append(
            {"@type": f"{_RPC_TYPE_PREFIX}QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDay"}]}
        )
    if details:
        error["details"] = details
    return {"error": error}


def _error_status(failure: Failure) -> int:
    kind_status = STATUS_BY_KIND.get(failure.kind, (STATUS_BY_FAILURE_KIND.get(failure.kind, 500), ""))[0]
    given = failure.status
    fits = given >= 400 and failure_kind_for_status(given) == failure.kind
    return given if fits and given != 529 else kind_status


def _is_error_body(body: Json) -> bool:
    if isinstance(body, list) and body:
        body = body[0]
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def unreadable_stream(error: Malformed) -> Failure:
    """What a stream that cannot be read comes to."""
    return Failure("upstream", f"the provider's stream cannot be read: {error}", 502, "invalid_stream")
