"""Errors: the same object as a body, in a stream, and for arguments that do not parse."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import (
    CONTEXT_CODE,
    bound_wait,
    failure_kind_for_status,
    read_retry_after,
    read_unshaped_error,
    text_field,
    write_retry_headers,
)
from toolwire.core.ir import STATUS_BY_FAILURE_KIND, Call, Failure, Finish, Origin
from toolwire.core.json_values import Json, Malformed, Object, Path, decode, describe_json_type, to_float
from toolwire.protocols.unified.names import ERROR_TYPE_BY_KIND, KIND_BY_ERROR_TYPE, NAME, intact_wire, write_call_id

HINTS: Mapping[str, str] = {
    "context": "shorten the conversation or the tools, or take a model with a larger window",
    "authentication": "check the API key",
    "not_found": "check the model's name; it reads provider/model",
    "rate": "wait, then send the request again",
    "quota": "the quota is used up; waiting a moment will not help",
    "overloaded": "wait, then send the request again",
    "malformed_arguments": "send the request again; `raw_arguments` holds what the model wrote",
    "stream_truncated": "send the request again; what came before is not the whole answer",
}
"""The `hint` for a code or a kind of failure."""


def read_error(body: Json, status: int, headers: Mapping[str, str]) -> Failure:
    """A failure from a body of any shape."""
    error = body.get("error") if isinstance(body, dict) else None
    retry_after = read_retry_after(headers)
    if not isinstance(error, dict):
        message = read_unshaped_error(body, status)
        origin = Origin(NAME, None, body, intact=False)
        return Failure(_failure_kind(status), message, status, retry_after=retry_after, origin=origin)
    failure = read_failure(error, (None, "error"), status)
    if failure.retry_after is not None:
        retry_after = failure.retry_after
    return replace(failure, retry_after=retry_after, origin=Origin(NAME, None, body))


def read_failure(error: Object, path: Path, status: int = 0) -> Failure:
    """An `error` object, in a whole answer or in a stream."""
    given = error.get("status")
    status = given if isinstance(given, int) and 400 <= given < 600 else status
    kind = KIND_BY_ERROR_TYPE.get(text_field(error, "type")) or _failure_kind(status)
    wait = error.get("retry_after")
    return Failure(
        kind,
        text_field(error, "message") or "the provider failed without a reason",
        status or STATUS_BY_FAILURE_KIND[kind],
        text_field(error, "code"),
        text_field(error, "path"),
        None if wait is None or isinstance(wait, (bool, str, list, dict)) else bound_wait(to_float(wait)),
        Origin(NAME, path, error),
    )


def write_error(failure: Failure) -> ErrorReply:
    status = failure.status if 400 <= failure.status < 600 and failure.kind != "overloaded" else 0
    status = status or STATUS_BY_FAILURE_KIND.get(failure.kind, 500)
    wire = intact_wire(failure.origin)
    body = wire if wire is not None and "error" in wire else {"error": write_failure(failure)}
    return ErrorReply(status, body, write_retry_headers(failure))


def write_failure(failure: Failure) -> Object:
    """The `error` object."""
    if (wire := intact_wire(failure.origin)) is not None:
        error = wire.get("error")
        return error if isinstance(error, dict) else wire
    out: Object = {"type": ERROR_TYPE_BY_KIND.get(failure.kind, "server_error"), "message": failure.message}
    details = {
        "path": failure.param,
        "code": failure.code or (CONTEXT_CODE if failure.kind == "context" else ""),
        "hint": HINTS.get(failure.code) or HINTS.get(failure.kind),
        "status": failure.status or STATUS_BY_FAILURE_KIND.get(failure.kind, 500),
    }
    out |= {key: value for key, value in details.items() if value}
    if failure.retry_after is not None:
        out["retry_after"] = failure.retry_after
    return out


def _failure_kind(status: int) -> str:
    return failure_kind_for_status(status) if status >= 400 else "upstream"


def write_malformed_arguments(call: Call, finish: Finish | None) -> Object:
    """The `error` object for a call whose arguments are not a JSON object, with the text that the model wrote."""
    if call.incomplete or (finish is not None and finish.kind == "length"):
        reason = "they were cut off"
    else:
        try:
            reason = f"expected an object, got {describe_json_type(decode(call.arguments))}"
        except Malformed as error:
            reason = error.problem
    message = f"the arguments of the call `{call.name}` cannot be read: {reason}"
    failure = Failure("upstream", message, 502, "malformed_arguments")
    details = {"tool_call_id": write_call_id(call.id), "name": call.name, "raw_arguments": call.arguments}
    return write_failure(failure) | details
