"""Errors: `{"message": …}` with their type in the header `x-amzn-errortype`, and as exceptions in a stream.

Source: the service model `bedrock-runtime` 2023-09-30 in botocore 1.44.3, looked up in November 2026."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from toolwire.core.codec import ErrorReply
from toolwire.core.errors import (
    OVERFLOW_KINDS,
    failure_kind_for_status,
    is_context_overflow,
    is_used_up,
    read_retry_after,
    read_retry_after_message,
    read_unshaped_error,
    text_field,
    word_overflow,
    write_retry_headers,
)
from toolwire.core.event_stream import Message, write_exception
from toolwire.core.ir import Failure, Origin
from toolwire.core.json_values import Json, Object, Path, encode
from toolwire.protocols.bedrock_converse.names import NAME, is_own

TYPE_HEADER = "x-amzn-errortype"

ERRORS_BY_KIND: Mapping[str, tuple[int, str]] = {
    "invalid": (400, "ValidationException"),
    "context": (400, "ValidationException"),
    "unprocessable": (400, "ValidationException"),
    "too_large": (400, "ValidationException"),
    "conflict": (400, "ValidationException"),
    "quota": (400, "ServiceQuotaExceededException"),
    "authentication": (403, "UnrecognizedClientException"),
    "permission": (403, "AccessDeniedException"),
    "billing": (403, "AccessDeniedException"),
    "not_found": (404, "ResourceNotFoundException"),
    "timeout": (408, "ModelTimeoutException"),
    "deadline": (408, "ModelTimeoutException"),
    "upstream": (500, "InternalServerException"),
    "cancelled": (424, "ModelErrorException"),
    "rate": (429, "ThrottlingException"),
    "server": (500, "InternalServerException"),
    "overloaded": (503, "ServiceUnavailableException"),
}
"""The status and the type that are written for each kind of failure. botocore 1.44 tries again after 429, 500, 503, and
not after 424: a provider that cannot be reached, or breaks off, may answer in a moment."""

KIND_BY_TYPE: Mapping[str, str] = {
    "ValidationException": "invalid",
    "ServiceQuotaExceededException": "quota",
    "AccessDeniedException": "permission",
    "UnrecognizedClientException": "authentication",
    "InvalidSignatureException": "authentication",
    "InvalidClientTokenId": "authentication",
    "IncompleteSignature": "authentication",
    "IncompleteSignatureException": "authentication",
    "SignatureDoesNotMatch": "authentication",
    "MissingAuthenticationToken": "authentication",
    "MissingAuthenticationTokenException": "authentication",
    "ExpiredToken": "authentication",
    "ExpiredTokenException": "authentication",
    "OptInRequired": "permission",
    "ResourceNotFoundException": "not_found",
    "ConflictException": "conflict",
    "ModelTimeoutException": "deadline",
    "ModelErrorException": "upstream",
    "ModelStreamErrorException": "upstream",
    "ThrottlingException": "rate",
    "ModelNotReadyException": "overloaded",
    "InternalServerException": "server",
    "InternalFailure": "server",
    "ServiceUnavailableException": "overloaded",
}
"""The kind of failure that each type stands for, of the service model and of AWS's common errors. botocore gives every
exception of a stream the status 400: the name counts (litellm#24608)."""

STREAM_EXCEPTIONS: Mapping[str, str] = {
    "ValidationException": "validationException",
    "ThrottlingException": "throttlingException",
    "InternalServerException": "internalServerException",
    "ServiceUnavailableException": "serviceUnavailableException",
    "ModelErrorException": "modelStreamErrorException",
    "ModelTimeoutException": "modelStreamErrorException",
    "ServiceQuotaExceededException": "throttlingException",
}
"""What a type of error is called in a stream; others cannot come there, and are validation errors."""

CONTEXT_OVERFLOW = "Input is too long for requested model."
_COUNTED_OVERFLOW = "Input is too long for requested model: {used} tokens > {limit}."


def read_error(body: Json, status: int, headers: Mapping[str, str], path: Path = None) -> Failure:
    """A failure from a body of any shape. The type is in a header, and in the body of some services and proxies."""
    lower = {name.lower(): value for name, value in headers.items()}
    error = body if isinstance(body, dict) else {}
    given = lower.get(TYPE_HEADER) or text_field(error, "__type") or text_field(error, "code")
    kind_name = given.partition(":")[0].rpartition("#")[2].strip()
    message = text_field(error, "message") or text_field(error, "Message")
    if not message:
        message = read_unshaped_error(body, status) if not kind_name or error.keys() - {"__type", "code"} else kind_name
    failure = make_failure(kind_name, message, error, status)
    wait = read_retry_after(headers)
    wait = read_retry_after_message(message) if wait is None else wait
    return replace(failure, retry_after=wait, origin=Origin(NAME, path, body))


def make_failure(kind_name: str, message: str, error: Object, status: int = 0) -> Failure:
    """A failure by its type; an error of the model itself by the status that the model's own server gave."""
    name = kind_name[:1].upper() + kind_name[1:]
    original = error.get("originalStatusCode")
    kind = KIND_BY_TYPE.get(name)
    if kind is None:
        kind = failure_kind_for_status(status) if status >= 400 else "upstream"
    elif kind == "upstream" and type(original) is int and 400 <= original < 600:
        kind = failure_kind_for_status(original)
        kind = "upstream" if kind in ("authentication", "permission", "not_found") else kind
    more = text_field(error, "originalMessage")
    if more and more not in message:
        message = f"{message} ({more})"
    if kind in OVERFLOW_KINDS and is_context_overflow(message):
        kind = "context"
    return Failure(kind, message, status, name)


def read_stream_error(message: Message, body: Json) -> Failure:
    """The failure of an `exception` or an `error` in a stream."""
    if message.kind == "error":
        return make_failure(message.name, message.error_text or message.name or "the provider gave no reason", {})
    error = body if isinstance(body, dict) else {}
    text = text_field(error, "message") or text_field(error, "Message") or message.name
    return make_failure(message.name, text or "the provider gave no reason", error)


def _write_type(failure: Failure) -> tuple[int, str]:
    """The status and the type. A limit that opens only after hours is one that nobody waits for."""
    kind = "quota" if is_used_up(failure) else failure.kind
    status, name = ERRORS_BY_KIND.get(kind, ERRORS_BY_KIND["server"])
    if KIND_BY_TYPE.get(failure.code) == kind and kind != "upstream":
        name = failure.code
    return status, name


def _write_message(failure: Failure) -> str:
    if failure.kind == "context" and not is_context_overflow(failure.message):
        return word_overflow(failure.message, _COUNTED_OVERFLOW, CONTEXT_OVERFLOW)
    return failure.message


def write_error(failure: Failure) -> ErrorReply:
    status, name = _write_type(failure)
    headers = {TYPE_HEADER: name, **write_retry_headers(failure)}
    origin = failure.origin
    if is_own(origin) and origin.intact and isinstance(origin.wire, dict) and "message" in origin.wire:
        if failure.kind == KIND_BY_TYPE.get(failure.code) == "upstream":
            status = failure.status or status  # its model has failed: it was reached
        given = failure.status if failure_kind_for_status(failure.status) == failure_kind_for_status(status) else status
        return ErrorReply(given or status, origin.wire, {**headers, TYPE_HEADER: failure.code or name})
    return ErrorReply(status, {"message": _write_message(failure)}, headers)


def write_stream_error(failure: Failure) -> bytes:
    name = "ModelErrorException" if failure.kind == "upstream" else _write_type(failure)[1]
    body: Object = {"message": _write_message(failure)}
    exception = STREAM_EXCEPTIONS.get(name, "validationException")
    if exception == "modelStreamErrorException" and failure.status:
        body["originalStatusCode"] = failure.status
    return write_exception(exception, encode(body))
