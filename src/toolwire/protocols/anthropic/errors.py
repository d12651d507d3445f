"""Errors, whole and inside a stream: the same body in both places."""

from __future__ import annotations

from collections.abc import Mapping

from toolwire.failures import kind_of_status, read_wait, write_wait
from toolwire.ir import FAILURES, Failure
from toolwire.protocols.anthropic.names import ERROR_BODY, ERRORS, NAME, OVERFLOW, OVERFLOWS, WIRE_ERRORS
from toolwire.reading import Reading, verbatim
from toolwire.room import Sent
from toolwire.wire import Json, Object


def read_error(body: Json, status: int, headers: Mapping[str, str]) -> Failure:
    """Whatever came instead of an answer: an error of this wire, or a page of something in between."""
    reading = Reading(NAME)
    retry_after = read_wait(headers)
    error = body.get("error") if isinstance(body, dict) else None
    if not isinstance(error, dict):
        message = error if isinstance(error, str) else body if isinstance(body, str) else ""
        said = message.strip()[:2000] or f"the provider answered with status {status} and no explanation"
        kind = kind_of_status(status)
        return Failure(kind, said, status or FAILURES[kind], retry_after=retry_after, origin=reading.whole(body, None))
    given = error.get("type")
    word = given if isinstance(given, str) else ""
    text = error.get("message")
    message = text if isinstance(text, str) and text else word or "the provider gave no reason"
    kind, usual = ERRORS.get(word, (kind_of_status(status), status))
    if kind in ("invalid", "too_large") and any(words in message.lower() for words in OVERFLOWS):
        kind = "context"
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return Failure(
        kind,
        message,
        status if status >= 400 else usual or FAILURES[kind],
        code if isinstance(code, str) else word,
        retry_after=retry_after,
        origin=reading.origin(body, None, ERROR_BODY),
    )


def write_error(failure: Failure) -> Sent:
    word, usual = WIRE_ERRORS.get(failure.kind, ("api_error", 500))
    status = _status(failure, usual)
    headers = write_wait(failure.retry_after)
    origin = failure.origin
    if origin is not None and verbatim(origin, NAME) and isinstance(origin.wire, dict) and "error" in origin.wire:
        return Sent(status, origin.wire, headers)
    return Sent(status, error_body(failure, word), headers)


def error_body(failure: Failure, word: str) -> Object:
    message = failure.message or failure.code or word
    if failure.kind == "context" and OVERFLOW not in message.lower():
        # Agents shorten their history when they meet these words.
        message = f"{OVERFLOW}: {message}"
    error: Object = {"type": word, "message": message}
    if failure.code and failure.code not in ERRORS:
        error["details"] = {"error_code": failure.code}
    return {"type": "error", "error": error}


def _status(failure: Failure, usual: int) -> int:
    """The status decides which exception a client raises, so it must suit the kind."""
    given = failure.status
    if failure.kind in ("server", "upstream", "deadline", "timeout", "cancelled"):
        return given if 400 <= given < 600 else usual
    if failure.kind == "invalid" and given >= 400 and kind_of_status(given) == "invalid":
        return given
    return usual
