"""Claude at Amazon Bedrock, at Vertex AI and in Azure: the same messages on other paths, with members of the body in
other places, and in another framing.

| | Messages | InvokeModel of Bedrock | Vertex AI |
|---|---|---|---|
| model | body | path | path |
| `stream` | body | path | path and body |
| version | header | body | body |
| betas | header | body | header |
| stream | server-sent events | event stream, each event in base64 | server-sent events |

Captured from anthropic 2.9.0 (`AnthropicBedrock`, `AnthropicVertex`, `AnthropicFoundry`); which models have which
endpoint at Bedrock: docs.aws.amazon.com/bedrock/latest/userguide/inference-messages-api.html. November 2026."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import msgspec

from toolwire.core.codec import Carriage, CarriedRequest, Platform
from toolwire.core.event_stream import CONTENT_TYPE, EventStreamSplitter, Message
from toolwire.core.json_values import encode
from toolwire.core.model_lists import percent_encode
from toolwire.core.sse import write_event_frame
from toolwire.protocols.anthropic.clouds import EXCEPTION_BY_ERROR_TYPE, read_object
from toolwire.protocols.anthropic.http import HTTP, PATH, extra_headers
from toolwire.protocols.anthropic.names import BEDROCK_VERSION, VERTEX_VERSION, invert_table

# --- betas ------------------------------------------------------------------------------------------------------------

_SHARED_BETAS = """
    compact-2026-01-12 computer-use-2025-01-24 computer-use-2025-11-24 context-1m-2025-08-07
    context-management-2025-06-27 dangerous-tool-use-2026-09-03 interleaved-thinking-2025-05-14
    thinking-binding-controls-2026-08-01 thinking-display-updates-2026-08-18 tool-search-tool-2025-10-19
"""
INVOKE_BETAS = frozenset(
    f"""{_SHARED_BETAS} effort-2025-11-24 fine-grained-tool-streaming-2025-05-14 tool-examples-2025-10-29
    mid-conversation-output-config-2026-07-01 mid-conversation-tool-changes-2026-07-01""".split()
)
BEDROCK_BETAS = frozenset(
    f"""{_SHARED_BETAS} claude-code-20250219 effort-2025-11-24 fine-grained-tool-streaming-2025-05-14
    output-128k-2025-02-19 per-turn-control-2026-07-01 structured-outputs-2025-11-13 token-efficient-tools-2025-02-19
    tool-examples-2025-10-29 web-search-2025-03-05""".split()
)
VERTEX_BETAS = frozenset(
    f"{_SHARED_BETAS} compact-2026-09-04 per-turn-control-2026-07-01 web-search-2025-03-05".split()
)
"""The betas that each endpoint knows. One that it does not know makes it refuse the request with "invalid beta flag"
(BerriAI/litellm#19877, anthropics/claude-code#49370). LiteLLM 1.109 (`anthropic_beta_headers_config.json`), November
2026."""
OTHER_BETA_NAMES = {"advanced-tool-use-2025-11-20": "tool-search-tool-2025-10-19"}
"""What the clouds call a beta of Anthropic's."""


def _split_betas(headers: Mapping[str, str], known: frozenset[str]) -> tuple[list[str], list[str]]:
    """The client's betas as the endpoint calls them, and those that it does not know."""
    named = [name.strip() for name in headers.get("anthropic-beta", "").split(",")]
    renamed = dict.fromkeys(OTHER_BETA_NAMES.get(name, name) for name in named if name)
    return [name for name in renamed if name in known], [name for name in renamed if name not in known]


def _write_headers(
    find_betas: Callable[[str], frozenset[str]], model: str, body: bytes, client_headers: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    version, *_ = extra_headers(model, body, client_headers)
    betas = _split_betas(client_headers, find_betas(model))[0]
    return (version, ("anthropic-beta", ",".join(betas))) if betas else (version,)


def _list_refused(
    find_betas: Callable[[str], frozenset[str]], model: str, client_headers: Mapping[str, str]
) -> Iterator[str]:
    for name in _split_betas(client_headers, find_betas(model))[1]:
        yield f"the beta `{name}`"


def _beta_members(find_betas: Callable[[str], frozenset[str]]) -> dict[str, object]:
    """The members of `Http` that leave betas out which the endpoint does not know."""
    return {"extra_headers": partial(_write_headers, find_betas), "list_refused": partial(_list_refused, find_betas)}


# --- requests ---------------------------------------------------------------------------------------------------------

_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def _move_members(sent: CarriedRequest, version: str, dropped: tuple[str, ...], moves_betas: bool) -> CarriedRequest:
    """The version and maybe the betas in the body instead of the headers; what the path says is not in the body."""
    members = _decode_members(sent.body)
    for name in dropped:
        members.pop(name, None)
    own = {"anthropic-version", "anthropic-beta"} if moves_betas else {"anthropic-version"}
    betas = [one for name, value in sent.headers if name == "anthropic-beta" for one in value.split(",")]
    members["anthropic_version"] = msgspec.Raw(encode(version))
    if betas and moves_betas:
        members["anthropic_beta"] = msgspec.Raw(encode(list(betas)))
    headers = tuple((name, value) for name, value in sent.headers if name not in own)
    return CarriedRequest(sent.path, headers, msgspec.json.encode(members))


# --- Amazon Bedrock ---------------------------------------------------------------------------------------------------

_has_old_name = re.compile(r"-v\d+(?::\d+)?$|^arn:").search
"""Ids with a version, such as `anthropic.claude-opus-4-6-v1`, and ARNs are served by InvokeModel; Messages takes names
without one, such as `anthropic.claude-opus-5-5`, from Claude Opus 4.7 on."""
_is_claude_id = re.compile(r"(?:^|[./])anthropic\.|^claude-").search
"""The ARN of an inference profile of one's own does not say which model it leads to: it is not taken for Claude, unless
the operator says so (maximhq/bifrost#6933)."""
INVOKE_PATH, MESSAGES_PATH = "/model/", f"/anthropic{PATH}"


def _bedrock_path(model: str, stream: bool) -> str:
    if not _has_old_name(model):
        return MESSAGES_PATH
    return f"{INVOKE_PATH}{percent_encode(model)}/{'invoke-with-response-stream' if stream else 'invoke'}"


def _write_bedrock_request(sent: CarriedRequest) -> CarriedRequest:
    if not sent.path.startswith(INVOKE_PATH):
        return sent
    return _move_members(sent, BEDROCK_VERSION, ("model", "stream"), moves_betas=True)


EXCEPTION_TYPES = {name[0].lower() + name[1:]: kind for name, kind in invert_table(EXCEPTION_BY_ERROR_TYPE).items()}
"""The error types for the exceptions of InvokeModelWithResponseStream. All others are `api_error`, as
`modelStreamErrorException` is (service model of bedrock-runtime, botocore 1.44.3)."""


class InvokeStreamDecoder:
    """From the messages of InvokeModelWithResponseStream to the events in them."""

    def __init__(self) -> None:
        self._splitter = EventStreamSplitter()
        self._has_failed = False

    def feed(self, data: bytes) -> bytes:
        frames = [self._read_message(message) for message in self._splitter.feed(data) if not self._has_failed]
        return b"".join(frames) + self._report_fault()

    def close(self) -> bytes:
        self._splitter.close()
        return self._report_fault()

    def _report_fault(self) -> bytes:
        return self._fail("api_error", self._splitter.fault) if self._splitter.fault else b""

    def _read_message(self, message: Message) -> bytes:
        if message.kind == "event" and message.name != "chunk":
            return b""  # AWS adds kinds of events
        payload = read_object(message.payload)
        if message.kind != "event":
            said = payload.get("message") if payload is not None else None
            text = said if isinstance(said, str) and said else message.error_text or message.name
            return self._fail(EXCEPTION_TYPES.get(message.name, "api_error"), text)
        encoded = payload.get("bytes") if payload is not None else None
        try:
            data = b64decode(encoded, validate=True) if isinstance(encoded, str) else b""
        except ValueError:
            data = b""
        event = read_object(data)
        kind = event.get("type") if event is not None else None
        if not isinstance(kind, str) or not kind.isprintable():
            return self._fail("api_error", "a chunk of the provider's stream cannot be read")
        return write_event_frame(kind, data.replace(b"\n", b" ").replace(b"\r", b" "))

    def _fail(self, kind: str, message: str) -> bytes:
        """Once: nothing follows a failure."""
        if self._has_failed:
            return b""
        self._has_failed = True
        return write_event_frame("error", encode({"type": "error", "error": {"type": kind, "message": message}}))


# --- Vertex AI --------------------------------------------------------------------------------------------------------

COUNT_PATH = "/models/count-tokens:rawPredict"


def _vertex_path(model: str, stream: bool) -> str:
    name = percent_encode(model).replace("%40", "@")  # before a version, as the SDK writes it
    return f"/models/{name}:{'streamRawPredict' if stream else 'rawPredict'}"


def _write_vertex_request(sent: CarriedRequest) -> CarriedRequest:
    dropped = () if sent.path == COUNT_PATH else ("model",)
    return _move_members(sent, VERTEX_VERSION, dropped, moves_betas=False)


_NO_OTHER_ENDPOINTS: dict[str, object] = {"provider_models_path": "", "passthrough_endpoints": ()}
_count = HTTP.token_count

PLATFORMS: Mapping[str, Platform] = {
    "bedrock": Platform(
        http={
            "request_path": _bedrock_path,
            **_beta_members(lambda model: INVOKE_BETAS if _has_old_name(model) else BEDROCK_BETAS),
            "token_count": None,
            "carriage": Carriage(
                write_request=_write_bedrock_request,
                stream_content_type=CONTENT_TYPE,
                make_stream_decoder=InvokeStreamDecoder,
            ),
            **_NO_OTHER_ENDPOINTS,
        },
        supports_model=lambda model, tools: _is_claude_id(model) is not None,
        reads_all=True,
    ),
    "vertex": Platform(
        http={
            "request_path": _vertex_path,
            **_beta_members(lambda model: VERTEX_BETAS),
            "token_count": _count and msgspec.structs.replace(_count, path=lambda model: COUNT_PATH),
            "carriage": Carriage(write_request=_write_vertex_request),
            **_NO_OTHER_ENDPOINTS,
        },
        supports_model=lambda model, tools: model.startswith("claude"),
        reads_all=True,
    ),
    **dict.fromkeys(
        ("azure", "azure-deployments"),
        Platform(http=_NO_OTHER_ENDPOINTS, supports_model=lambda model, tools: "claude" in model.lower()),
    ),
}
