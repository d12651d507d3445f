"""Errors, as whole bodies and as frames of a stream: `{"error": {code, message, status, details}}`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from toolwire.failures import kind_of_status, read_wait, write_wait
from toolwire.ir import FAILURES, Failure, Origin
from toolwire.protocols.gemini.names import NAME
from toolwire.reading import verbatim
from toolwire.room import Sent
from toolwire.wire import Json, Malformed, Object, Path, encode_text

KINDS: Mapping[str, str] = MappingProxyType(
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

WORDS: Mapping[str, tuple[int, str]] = MappingProxyType(
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

OVERFLOW = "The input token count exceeds the maximum number of tokens allowed"
_OVERFLOW = re.compile(
    r"input token count.*exceeds|exceeds the maximum number of (?:input )?tokens|context (?:length|window)",
    re.IGNORECASE,
)
_RPC = "type.googleapis.com/google.rpc."
_SECONDS = re.compile(r"(\d+(?:\.\d+)?)s?")


def read_error(body: Json, status: int, headers: Mapping[str, str], path: Path = None) -> Failure:
    """Any error body as a failure: this wire's own shape, one in an array, or whatever a proxy in between said."""
    found = body
    if isinstance(found, list) and found:
        found, path = found[0], (path, 0)
    error = found.get("error") if isinstance(found, dict) else None
    origin = Origin(NAME, path, body)
    waits = read_wait(headers)
    if not isinstance(error, dict):
        message = error if isinstance(error, str) else _plain(body)
        kind = kind_of_status(status) if status >= 400 else "upstream"
        return Failure(kind, message or f"the provider answered with status {status}", status, "", "", waits, origin)
    word = str(error.get("status") or "")
    code = error.get("code")
    if not status and isinstance(code, int):
        status = code
    message = str(error.get("message") or word or f"the provider answered with status {status}")
    details = [item for item in error.get("details") or [] if isinstance(item, dict)] if _listed(error) else []
    delay = next((waited for item in details if (waited := _seconds(item.get("retryDelay"))) is not None), waits)
    return Failure(_kind(word, status, message, details), message, status, word, _param(details), delay, origin)


def _listed(error: Object) -> bool:
    return isinstance(error.get("details"), list)


def _kind(word: str, status: int, message: str, details: list[Object]) -> str:
    kind = KINDS.get(word) or kind_of_status(status)
    if kind == "invalid":
        if any(item.get("reason") == "API_KEY_INVALID" for item in details):
            return "authentication"
        if _OVERFLOW.search(message):
            return "context"
        return "too_large" if status == 413 else kind
    if kind == "rate" and any("PerDay" in encode_text(item) for item in details):
        return "quota"
    return kind


def _param(details: list[Object]) -> str:
    for item in details:
        violations = item.get("fieldViolations")
        if isinstance(violations, list) and violations and isinstance(violations[0], dict):
            return str(violations[0].get("field") or "")
    return ""


def _seconds(value: Json) -> float | None:
    found = _SECONDS.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) if found else None


def _plain(body: Json) -> str:
    if body is None:
        return ""
    return (body if isinstance(body, str) else encode_text(body)).strip()[:2000]


def write_error(failure: Failure) -> Sent:
    status = _status(failure)
    headers = write_wait(failure.retry_after)
    if verbatim(failure.origin, NAME) and _is_error(failure.origin.wire):  # type: ignore[union-attr]
        return Sent(failure.status or status, failure.origin.wire, headers)  # type: ignore[union-attr]
    return Sent(status, error_body(failure), headers)


def error_body(failure: Failure) -> Object:
    status = _status(failure)
    message = failure.message
    if failure.kind == "context" and not _OVERFLOW.search(message):
        message = f"{OVERFLOW}: {message}"
    word = failure.code if KINDS.get(failure.code) == failure.kind else WORDS.get(failure.kind, (500, "INTERNAL"))[1]
    error: Object = {"code": status, "message": message, "status": word}
    details: list[Object] = []
    if failure.param:
        details.append(
            {"@type": f"{_RPC}BadRequest", "fieldViolations": [{"field": failure.param, "description": message}]}
        )
    if failure.retry_after is not None:
        details.append({"@type": f"{_RPC}RetryInfo", "retryDelay": f"{failure.retry_after:g}s"})
    if failure.kind == "quota":
        details.append({"@type": f"{_RPC}QuotaFailure", "violations": [{"quotaId": "GenerateRequestsPerDay"}]})
    if details:
        error["details"] = details
    return {"error": error}


def _status(failure: Failure) -> int:
    kind_status = WORDS.get(failure.kind, (FAILURES.get(failure.kind, 500), ""))[0]
    given = failure.status
    fits = given >= 400 and kind_of_status(given) == failure.kind
    return given if fits and given != 529 else kind_status


def _is_error(body: Json) -> bool:
    if isinstance(body, list) and body:
        body = body[0]
    return isinstance(body, dict) and isinstance(body.get("error"), dict)


def unreadable(error: Malformed) -> Failure:
    """What a stream that cannot be read comes to."""
    return Failure("upstream", f"the provider's stream cannot be read: {error}", 502, "invalid_stream")
