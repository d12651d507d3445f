"""Failures: as a whole body, inside a stream, and for arguments that do not parse."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from toolwire.failures import kind_of_status, read_wait, write_wait
from toolwire.ir import FAILURES, Call, Failure, Finish, Origin
from toolwire.protocols.unified.names import ERROR_TYPES, FAILURE_KINDS, NAME, write_id
from toolwire.reading import verbatim
from toolwire.room import Sent
from toolwire.wire import Json, Malformed, Object, Path, as_float, decode, kind_of

HINTS: Mapping[str, str] = MappingProxyType(
    {
        "context": "shorten the conversation or the tools, or take a model with a larger window",
        "authentication": "check the API key",
        "not_found": "check the model's name; it reads provider/model",
        "rate": "wait, then send the request again",
        "quota": "the account's quota is used up; waiting a moment will not help",
        "overloaded": "wait, then send the request again",
        "malformed_arguments": "send the request again; `raw_arguments` holds what the model wrote",
        "stream_truncated": "send the request again; what came before is not the whole answer",
    }
)
"""What to do, by code or kind."""

CODES: Mapping[str, str] = MappingProxyType({"context": "context_length_exceeded"})
"""Codes that clients look for, where the failure brings none."""


def read_error(body: Json, status: int, headers: Mapping[str, str]) -> Failure:
    """Whatever came with a status that is no success; never raises."""
    error = body.get("error") if isinstance(body, dict) else None
    waiting = read_wait(headers)
    if not isinstance(error, dict):
        message = _excerpt(body) or f"the provider answered with status {status} and no reason"
        origin = Origin(NAME, None, body, intact=False)
        return Failure(_kind(status), message, status, retry_after=waiting, origin=origin)
    failure = read_failure(error, (None, "error"), status)
    wait = failure.retry_after if failure.retry_after is not None else waiting
    code, param = failure.code, failure.param
    return Failure(failure.kind, failure.message, failure.status, code, param, wait, Origin(NAME, None, body))


def read_failure(error: Object, path: Path, status: int = 0) -> Failure:
    """An `error` object, in a whole answer or in a stream."""
    told = error.get("status")
    status = told if isinstance(told, int) and not isinstance(told, bool) else status
    kind = FAILURE_KINDS.get(_text(error, "type")) or _kind(status)
    wait = error.get("retry_after")
    return Failure(
        kind,
        _text(error, "message") or "the provider failed without a reason",
        status or FAILURES[kind],
        _text(error, "code"),
        _text(error, "path"),
        None if wait is None or isinstance(wait, (bool, str, list, dict)) else as_float(wait),
        Origin(NAME, path, error),
    )


def write_error(failure: Failure) -> Sent:
    status = failure.status if 400 <= failure.status < 600 and failure.kind != "overloaded" else 0
    status = status or FAILURES.get(failure.kind, 500)
    wait = failure.retry_after
    headers = write_wait(wait)
    if verbatim(failure.origin, NAME) and "error" in failure.origin.wire:  # type: ignore[union-attr]
        return Sent(status, failure.origin.wire, headers)  # type: ignore[union-attr]
    return Sent(status, {"error": write_failure(failure)}, headers)


def write_failure(failure: Failure) -> Object:
    """The `error` object."""
    if verbatim(failure.origin, NAME):
        wire: Object = failure.origin.wire  # type: ignore[union-attr]
        inner = wire.get("error")
        return inner if isinstance(inner, dict) else wire
    out: Object = {"type": ERROR_TYPES.get(failure.kind, "server_error"), "message": failure.message}
    beside = {
        "path": failure.param,
        "code": failure.code or CODES.get(failure.kind, ""),
        "hint": HINTS.get(failure.code) or HINTS.get(failure.kind),
        "status": failure.status or FAILURES.get(failure.kind, 500),
    }
    out |= {key: value for key, value in beside.items() if value}
    if failure.retry_after is not None:
        out["retry_after"] = failure.retry_after
    return out


def _kind(status: int) -> str:
    return kind_of_status(status) if status >= 400 else "upstream"


def malformed_arguments(call: Call, finish: Finish | None) -> Object:
    """The `error` object for a call whose arguments are no JSON object. It carries the text that the model wrote."""
    cut = call.incomplete or (finish is not None and finish.kind == "length")
    reason = "they were cut off" if cut else _why_no_object(call.arguments)
    message = f"the arguments of the call `{call.name}` cannot be read: {reason}"
    failure = Failure("upstream", message, 502, "malformed_arguments")
    told = {"tool_call_id": write_id(call.id), "name": call.name, "raw_arguments": call.arguments}
    return write_failure(failure) | told


def _why_no_object(text: str) -> str:
    try:
        value = decode(text)
    except Malformed as error:
        return error.problem
    return f"expected an object, got {kind_of(value)}"


def _text(node: Object, key: str) -> str:
    value = node.get(key)
    return value if isinstance(value, str) else ""


def _excerpt(body: Json) -> str:
    text = body if isinstance(body, str) else body.get("message") if isinstance(body, dict) else ""
    return " ".join(text[:2000].split())[:500] if isinstance(text, str) else ""
