"""Claude as the clients of two clouds ask for it: InvokeModel of Amazon Bedrock, and `rawPredict` of Vertex AI. The
model and the stream flag are in the path, the version and on Bedrock the betas in the body, and Bedrock's streams are
event streams. Everything else is Messages.

This is the server's side; `platforms.py` is the client's. Captured from the SDK classes of `anthropic` 0.125 to 2.9 and
from boto3 1.44, and read in botocore's service model of `bedrock-runtime`, in November 2026."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from toolwire.core import event_stream
from toolwire.core.codec import AdaptedBody, EndpointMatch
from toolwire.core.ir import Failure
from toolwire.core.json_values import Malformed, Object, decode, encode
from toolwire.core.sse import Frame, FrameTooLong, SseSplitter
from toolwire.protocols.anthropic.names import BEDROCK_VERSION, NEW_VERSION, OLD_VERSION, VERTEX_VERSION

EVENT_STREAM = "event-stream"
"""The framing of Bedrock's streams."""
VERSIONS: Mapping[str, str] = {
    BEDROCK_VERSION: OLD_VERSION,
    VERTEX_VERSION: OLD_VERSION,
    NEW_VERSION: NEW_VERSION,
}
"""The values of `anthropic_version` in a body, each with that of the header. SDKs write the newest from 2.0 on."""
_OWN_MEMBERS = ("anthropic_version", "anthropic_beta", "stream")
_VERTEX_PATH = re.compile(
    r"(?:/v\w+)?/projects/[^/]+/locations/[^/]+/publishers/anthropic/models/(?P<model>[^/:]+):(?P<verb>\w+)"
)
_CLOUD_NAME = re.compile(
    r"(?:(?:[a-z]{2,6}(?:-gov)?\.)?anthropic\.)?(?P<name>claude-[a-z0-9-]+?)(?:-v\d+(?::\d+)?)?(?:@(?P<date>\d{8}))?"
)
"""Names of Claude models at Bedrock, with a region or without, and at Vertex AI: Claude Code asks for these."""
_VERTEX_COUNT = "count-tokens"
_read_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_text = msgspec.json.Decoder(str).decode
_read_texts = msgspec.json.Decoder(list[str]).decode


# --- paths ------------------------------------------------------------------------------------------------------------


def match_endpoint(path: str, _query: str) -> EndpointMatch | None:
    """The endpoint of a cloud's path, which has no escapes."""
    if path.startswith("/model/"):
        model, _, verb = path.removeprefix("/model/").rpartition("/")
        return _name_model(_BEDROCK_VERBS[verb], model) if model and verb in _BEDROCK_VERBS else None
    found = _VERTEX_PATH.fullmatch(path)
    if found is None:
        return None
    model, verb = found["model"], found["verb"]
    if model == _VERTEX_COUNT:
        return EndpointMatch("count_tokens", adapt_body=adapt_body) if verb == "rawPredict" else None
    return _name_model(_VERTEX_VERBS[verb], model) if verb in _VERTEX_VERBS else None


def _name_model(endpoint: EndpointMatch, model: str) -> EndpointMatch:
    found = _CLOUD_NAME.fullmatch(model)
    own_name = "" if found is None else "-".join(filter(None, (found["name"], found["date"])))
    return replace(endpoint, model=model, other_model="" if own_name == model else own_name)


# --- requests ---------------------------------------------------------------------------------------------------------


def adapt_body(data: bytes, endpoint: EndpointMatch, headers: Mapping[str, str]) -> AdaptedBody | Failure:
    """The body as Messages has it: with the model and the stream flag of the path, and without the version and the
    betas, which are headers there. A body that is no object stays as it is: who reads it says what is wrong."""
    try:
        members = _read_members(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return AdaptedBody(data, headers)
    try:
        version = _read_text(members["anthropic_version"]) if "anthropic_version" in members else ""
        betas = _read_texts(members["anthropic_beta"]) if "anthropic_beta" in members else []
    except (msgspec.DecodeError, UnicodeError):
        return Failure("invalid", "`anthropic_version` must be a string, and `anthropic_beta` a list of them", 400)
    if version not in VERSIONS:
        return _refuse_version(version)
    first: dict[str, object] = {"model": endpoint.model} if endpoint.model and "model" not in members else {}
    if endpoint.stream:
        first["stream"] = True
    kept = {name: value for name, value in members.items() if name not in _OWN_MEMBERS}
    sent_betas = filter(None, (headers.get("anthropic-beta", ""), *betas))
    joined = ",".join(dict.fromkeys(beta.strip() for text in sent_betas for beta in text.split(",")))
    added = {"anthropic-version": VERSIONS[version]} | ({"anthropic-beta": joined} if joined else {})
    return AdaptedBody(msgspec.json.encode({**first, **kept}), {**headers, **added})


def _refuse_version(version: str) -> Failure:
    if version:
        return Failure("invalid", f"`anthropic_version` is `{version[:80]}`; known are: {', '.join(VERSIONS)}", 400)
    what = "`anthropic_version` is missing: here the body is that of a Claude model; for other models use `converse`"
    return Failure("invalid", what, 400, param="anthropic_version")


# --- errors -----------------------------------------------------------------------------------------------------------

EXCEPTION_BY_ERROR_TYPE: Mapping[str, str] = {
    "invalid_request_error": "ValidationException",
    "authentication_error": "UnrecognizedClientException",
    "permission_error": "AccessDeniedException",
    "billing_error": "AccessDeniedException",
    "not_found_error": "ResourceNotFoundException",
    "conflict_error": "ConflictException",
    "request_too_large": "ValidationException",
    "rate_limit_error": "ThrottlingException",
    "api_error": "InternalServerException",
    "timeout_error": "ModelTimeoutException",
    "overloaded_error": "ServiceUnavailableException",
}
"""Exceptions of Bedrock for the error types of Anthropic: SDKs of AWS choose their exception by this name.
Read the other way, the first row of an exception counts. In streams they begin with a small letter."""
_OTHER_EXCEPTION = "InternalServerException"


def read_object(data: bytes) -> Object | None:
    """None if the bytes are no JSON object."""
    try:
        found = decode(data)
    except (Malformed, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _read_error(body: Object) -> tuple[str, str]:
    """The exception and the message of an error of Messages."""
    error = body.get("error")
    if not isinstance(error, dict):
        return _OTHER_EXCEPTION, ""
    kind, message = error.get("type"), error.get("message")
    name = EXCEPTION_BY_ERROR_TYPE.get(kind, _OTHER_EXCEPTION) if isinstance(kind, str) else _OTHER_EXCEPTION
    return name, message if isinstance(message, str) else ""


def adapt_error(data: bytes) -> tuple[bytes, Mapping[str, str]]:
    """An error of Messages as clients of Bedrock read it: Anthropic's SDK its body, those of AWS `message` and the name
    of the exception in a header."""
    body = read_object(data) or {}
    name, message = _read_error(body)
    return encode({"message": message, **body}), {"x-amzn-errortype": name}


# --- streams ----------------------------------------------------------------------------------------------------------


class EventStreamConverter:
    """Converts server-sent events to Bedrock's event stream: a `chunk` for each, and an exception for an error."""

    content_type = event_stream.CONTENT_TYPE

    def __init__(self) -> None:
        self._splitter = SseSplitter()
        self._is_over = False

    def feed(self, data: bytes) -> bytes:
        if self._is_over:
            return b""
        try:
            frames = self._splitter.feed(data)
        except FrameTooLong as error:
            self._is_over = True
            return event_stream.write_exception("modelStreamErrorException", encode({"message": str(error)}))
        return b"".join(map(self._write_frame, frames))

    def close(self) -> bytes:
        rest = b"" if self._is_over else b"".join(map(self._write_frame, self._splitter.close()))
        self._is_over = True
        return rest

    def _write_frame(self, frame: Frame) -> bytes:
        if self._is_over:
            return b""
        body = read_object(frame.data) if frame.event in (None, "error") else None
        if frame.event == "error" or (body is not None and body.get("type") == "error"):
            self._is_over = True
            name, message = _read_error(body or {})
            return event_stream.write_exception(name[0].lower() + name[1:], encode({"message": message}))
        return event_stream.write_event("chunk", encode({"bytes": b64encode(frame.data).decode()}))


def make_framing_converter(framing: str) -> EventStreamConverter | None:
    return EventStreamConverter() if framing == EVENT_STREAM else None


_GENERATE = EndpointMatch("generate", stream=False, adapt_body=adapt_body)
_INVOKE = replace(_GENERATE, adapt_error=adapt_error)
_BEDROCK_VERBS = {
    "invoke": _INVOKE,
    "invoke-with-response-stream": replace(_INVOKE, stream=True, framing=EVENT_STREAM),
}
_VERTEX_VERBS = {"rawPredict": _GENERATE, "streamRawPredict": replace(_GENERATE, stream=True)}
