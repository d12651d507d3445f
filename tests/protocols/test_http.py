"""How each protocol looks from outside: paths, headers, limits, lists, counts and framings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import material
from toolwire.core import sse
from toolwire.core.codec import EndpointMatch, ModelInfo, RateLimit, make_facts
from toolwire.core.json_values import encode
from toolwire.protocols import CODECS, find_codec

CHAT, RESPONSES, MESSAGES, GEMINI, CONVERSE, UNIFIED = (find_codec(name).http for name in CODECS)
NOW = 1795176000.0  # 2026-11-20T12:00:00Z

# --- paths ----------------------------------------------------------------------------------------------------------


def test_paths_that_never_vary() -> None:
    posts = {
        path: (name, asked.operation)
        for name in CODECS
        for path, asked in find_codec(name).http.fixed_endpoints.items()
    }
    assert posts == {
        "/v1/chat/completions": ("openai-chat", "generate"),
        "/v1/responses": ("openai-responses", "generate"),
        "/v1/responses/input_tokens": ("openai-responses", "count_tokens"),
        "/v1/messages": ("anthropic", "generate"),
        "/v1/messages/count_tokens": ("anthropic", "count_tokens"),
        "/v1/unified": ("unified", "generate"),
    }


ASKED: list[tuple[str, str, EndpointMatch | None]] = [
    ("/v1beta/models/gemini-3-pro:generateContent", "", EndpointMatch("generate", "gemini-3-pro", False)),
    ("/v1/models/gemini-3-pro:generateContent", "key=k", EndpointMatch("generate", "gemini-3-pro", False)),
    ("/v1alpha/models/m:countTokens", "", EndpointMatch("count_tokens", "m")),
    ("/v1beta/models/m:streamGenerateContent", "alt=sse", EndpointMatch("generate", "m", True)),
    ("/v1beta/models/m:streamGenerateContent", "key=k&alt=sse", EndpointMatch("generate", "m", True)),
    ("/v1beta/models/m:streamGenerateContent", "%24alt=sse", EndpointMatch("generate", "m", True)),
    ("/v1beta/models/m:streamGenerateContent", "", EndpointMatch("generate", "m", True, "array")),
    ("/v1beta/models/m:streamGenerateContent", "alt=json", EndpointMatch("generate", "m", True, "array")),
    ("/v1beta/models/m:streamGenerateContent", "salt=sse", EndpointMatch("generate", "m", True, "array")),
    ("/v1beta/models/openai/gpt-5.5:generateContent", "", EndpointMatch("generate", "openai/gpt-5.5", False)),
    ("/v1beta/models/llama3:8b:generateContent", "", EndpointMatch("generate", "llama3:8b", False)),
    ("/v1beta/tunedModels/x:generateContent", "", EndpointMatch("generate", "tunedModels/x", False)),
    ("/v1beta1/publishers/google/models/m:generateContent", "", EndpointMatch("generate", "m", False)),
    ("/v1/projects/p/locations/l/publishers/google/models/m:countTokens", "", EndpointMatch("count_tokens", "m")),
    ("/v1beta/models/m:embedContent", "", None),
    ("/v1beta/models/:generateContent", "", None),
    ("/v1beta/cachedContents/m:generateContent", "", None),
    ("/v2/models/m:generateContent", "", None),
    ("/v1/chat/completions", "", None),
]


@pytest.mark.parametrize(("path", "query", "asked"), ASKED)
def test_a_path_with_the_model_in_it(path: str, query: str, asked: EndpointMatch | None) -> None:
    assert GEMINI.match_endpoint is not None
    assert GEMINI.match_endpoint(path, query) == asked


@given(st.text(min_size=1), st.booleans())
def test_a_model_in_a_path_is_read_back_and_stays_in_its_place(model: str, stream: bool) -> None:
    assert GEMINI.match_endpoint is not None
    model = model.encode("utf-8", "replace").decode()
    path, _, query = GEMINI.request_path(model, stream).partition("?")
    assert path.isascii()
    assert not set(path) & set(' ?#\r\n\\"<>')
    asked = GEMINI.match_endpoint(unquote(path), query)
    if model.startswith("models/"):
        model = model.removeprefix("models/")
    if model and not model.startswith(("models/", "publishers/", "projects/", "tunedModels/")):
        assert asked == EndpointMatch("generate", model, stream)


def test_every_post_is_of_a_family_of_its_room() -> None:
    for name in CODECS:
        http = find_codec(name).http
        assert all(path.startswith(http.path_prefixes) for path in http.fixed_endpoints)
        assert "/v1beta/models/m:generateContent".startswith(GEMINI.path_prefixes)


FAMILY = {
    "/v1/embeddings": "openai-chat",
    "/v1/files/file-1": "openai-chat anthropic",  # two have it: the client's headers tell
    "/v1/audio/speech": "openai-chat",
    "/v1/responses/resp_1": "openai-responses",
    "/v1/conversations": "openai-responses",
    "/v1/messages/batches": "anthropic",
    "/api/hello": "anthropic",
    "/v1beta/cachedContents": "gemini",
    "/upload/v1beta/files": "gemini",
    "/v1/unified/models": "unified",
}


@pytest.mark.parametrize("path", FAMILY)
def test_a_path_that_is_only_passed_through_has_its_family(path: str) -> None:
    assert " ".join(name for name in CODECS if path.startswith(find_codec(name).http.path_prefixes)) == FAMILY[path]


# --- headers --------------------------------------------------------------------------------------------------------


def matches(patterns: tuple[str, ...], name: str) -> bool:
    return any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)


@pytest.mark.parametrize("name", CODECS)
def test_no_key_is_ever_forwarded_or_answered(name: str) -> None:
    http = find_codec(name).http
    keys = {key for other in CODECS for key in find_codec(other).http.credential_headers} | {
        "cookie",
        "proxy-authorization",
    }
    assert not {key for key in keys if matches(http.forwarded_headers, key) or matches(http.returned_headers, key)}
    assert http.write_credential("secret")[0] in http.credential_headers


@pytest.mark.parametrize("name", CODECS)
def test_headers_are_in_lower_case_and_made_in_one_place_only(name: str) -> None:
    http = find_codec(name).http
    for header in (
        *http.forwarded_headers,
        *http.returned_headers,
        *http.identifying_names,
        *http.credential_headers,
        http.request_id_header,
    ):
        assert header == header.lower()
    made = {header for header, _ in http.extra_headers("m", b"{}", {"anthropic-beta": "a"})}
    assert not {header for header in made if matches(http.forwarded_headers, header)}


def test_signs_tell_clients_apart() -> None:
    signs = [find_codec(name).http.identifying_names for name in CODECS]
    assert sum(map(len, signs)) == len(frozenset().union(*signs))
    assert not CHAT.identifying_names
    assert {"anthropic-version", "anthropic-beta"} <= MESSAGES.identifying_names
    assert {"x-goog-api-key", "x-goog-api-client", "key"} <= GEMINI.identifying_names
    assert {"originator", "x-codex-window-id"} <= RESPONSES.identifying_names


CREDENTIALS = {
    "openai-chat": ("authorization", "Bearer k"),
    "openai-responses": ("authorization", "Bearer k"),
    "anthropic": ("x-api-key", "k"),
    "gemini": ("x-goog-api-key", "k"),
    "unified": ("authorization", "Bearer k"),
}


@pytest.mark.parametrize("name", CREDENTIALS)
def test_a_key_is_shown_as_the_protocol_wants(name: str) -> None:
    assert find_codec(name).http.write_credential("k") == CREDENTIALS[name]


def test_a_persons_token_is_no_key() -> None:
    assert MESSAGES.write_credential("sk-ant-oat01-x") == ("authorization", "Bearer sk-ant-oat01-x")


OLD, NEW = "2023-06-01", "2026-10-21"
PLAIN = b'{"messages":[]}'


@pytest.mark.parametrize(
    ("model", "body", "given", "version"),
    [
        ("claude-opus-5-5", PLAIN, OLD, OLD),
        ("claude-opus-5-5", PLAIN, NEW, NEW),
        ("claude-3-5-haiku-20241022", PLAIN, NEW, NEW),
        ("claude-sonnet-4-5", b'{"temperature":1}', NEW, OLD),
        ("claude-sonnet-4-5", b'{"top_p": 0.5}', NEW, OLD),
        ("claude-sonnet-4-5", b'{"top_k":5}', NEW, OLD),
        ("claude-opus-5-5", PLAIN, "2099-01-01", NEW),
        ("claude-opus-5-5", PLAIN, "", NEW),
        ("claude-opus-5-5", b'{"top_k":5}', "", OLD),
        ("claude-opus-5-5", b'{"content":[{"type":"document"}]}', "", OLD),
        ("claude-opus-5-5", b'{"citations":[{}]}', "", OLD),
        ("claude-opus-5-5", b'{"citations":[{}]}', NEW, NEW),
        ("claude-sonnet-4-5", PLAIN, "", OLD),
        ("claude-sonnet-4-5", PLAIN, "2023-01-01", OLD),
        ("kimi-k3", PLAIN, "", OLD),
    ],
)
def test_the_version_fits_the_model_and_the_body(model: str, body: bytes, given: str, version: str) -> None:
    headers = {"anthropic-version": given} if given else {}
    assert MESSAGES.extra_headers(model, body, headers) == (("anthropic-version", version),)


def test_betas_of_the_client_pass() -> None:
    given = {"anthropic-version": NEW, "anthropic-beta": "files-api-2025-04-14,future-2030-01-01", "x-api-key": "k"}
    assert dict(MESSAGES.extra_headers("m", PLAIN, given)) == {
        "anthropic-version": NEW,
        "anthropic-beta": "files-api-2025-04-14,future-2030-01-01",
    }


@pytest.mark.parametrize(
    ("name", "beat"),
    [
        ("openai-chat", b": keep-alive\n\n"),
        ("openai-responses", b": keep-alive\n\n"),
        ("anthropic", b'event: ping\ndata: {"type": "ping"}\n\n'),
        ("gemini", b""),
        ("unified", b": keep-alive\n\n"),
    ],
)
def test_a_heartbeat_says_nothing(name: str, beat: bytes) -> None:
    assert find_codec(name).http.heartbeat == beat
    reader = find_codec(name).make_stream_reader()
    assert not [event for event in reader.feed(beat) if type(event).__name__ != "OpaqueEvent"]


# --- limits ---------------------------------------------------------------------------------------------------------

OPENAI_LIMITS = {
    "x-ratelimit-limit-requests": "60",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-requests": "120ms",
    "x-ratelimit-reset-tokens": "6m0s",
}
ANTHROPIC_LIMITS = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "49",
    "anthropic-ratelimit-requests-reset": "2026-11-20T12:00:01Z",
    "anthropic-ratelimit-input-tokens-limit": "30000",
    "anthropic-ratelimit-input-tokens-remaining": "0",
    "anthropic-ratelimit-input-tokens-reset": "2026-11-20T12:01:00Z",
}
READ: list[tuple[str, Mapping[str, str], tuple[RateLimit, ...]]] = [
    ("openai-chat", OPENAI_LIMITS, (RateLimit("requests", 60, 59, 0.12), RateLimit("tokens", 150000, 149984, 360.0))),
    (
        "openai-responses",
        OPENAI_LIMITS,
        (RateLimit("requests", 60, 59, 0.12), RateLimit("tokens", 150000, 149984, 360.0)),
    ),
    ("anthropic", ANTHROPIC_LIMITS, (RateLimit("requests", 50, 49, 1.0), RateLimit("input-tokens", 30000, 0, 60.0))),
    ("gemini", OPENAI_LIMITS, ()),
    ("unified", OPENAI_LIMITS, (RateLimit("requests", 60, 59, 0.12), RateLimit("tokens", 150000, 149984, 360.0))),
]


@pytest.mark.parametrize(("name", "headers", "limits"), READ)
def test_limits_are_read_and_written_back(name: str, headers: Mapping[str, str], limits: tuple[RateLimit, ...]) -> None:
    http = find_codec(name).http
    assert http.read_rate_limits(headers, NOW) == limits
    assert http.write_rate_limits(limits, NOW) == (headers if limits else {})


def test_limits_cross_from_spans_to_times_of_day() -> None:
    limits = CHAT.read_rate_limits(OPENAI_LIMITS, NOW)
    assert MESSAGES.write_rate_limits(limits, NOW) == {
        "anthropic-ratelimit-requests-limit": "60",
        "anthropic-ratelimit-requests-remaining": "59",
        "anthropic-ratelimit-requests-reset": "2026-11-20T12:00:01Z",
        "anthropic-ratelimit-tokens-limit": "150000",
        "anthropic-ratelimit-tokens-remaining": "149984",
        "anthropic-ratelimit-tokens-reset": "2026-11-20T12:06:00Z",
    }
    back = MESSAGES.read_rate_limits(ANTHROPIC_LIMITS, NOW)
    assert set(CHAT.write_rate_limits(back, NOW)) == {name for name in OPENAI_LIMITS if name.endswith("requests")}


@pytest.mark.parametrize("value", ["", "many", "-1", "9" * 5000, "٣"])
def test_a_limit_that_cannot_be_read_is_not_known(value: str) -> None:
    headers = {"x-ratelimit-limit-requests": value, "x-ratelimit-reset-requests": value}
    assert CHAT.read_rate_limits(headers, NOW) == (RateLimit("requests"),)
    late = {"anthropic-ratelimit-tokens-limit": "1", "anthropic-ratelimit-tokens-reset": value}
    assert MESSAGES.read_rate_limits(late, NOW) == (RateLimit("tokens", 1),)


def test_a_reset_in_the_past_is_now() -> None:
    assert MESSAGES.read_rate_limits(ANTHROPIC_LIMITS, NOW + 3600)[0].reset_after == 0.0


# --- models ---------------------------------------------------------------------------------------------------------

CARDS = tuple(ModelInfo(f"m{number}", "p", 1767225600) for number in range(5))
FULL = ModelInfo("openai/gpt-5.5", "openai", 1767225600, make_facts(400_000, 128_000))
ABLE = replace(
    FULL,
    facts=replace(
        FULL.facts,
        input_modalities=("text", "image"),
        output_modalities=("text",),
        tools=True,
        parallel_tools=False,
        reasoning_efforts=("none", "low", "high"),
    ),
)
"""The same model with all facts."""


@pytest.mark.parametrize("http", [CHAT, RESPONSES])
def test_an_openai_list(http: Any) -> None:
    body = http.write_model_list((FULL,), {"client_version": "0.166.0"})
    assert body == {
        "object": "list",
        "data": [{"id": "openai/gpt-5.5", "object": "model", "created": 1767225600, "owned_by": "openai"}],
        "models": [],
    }


# The SDKs take seconds to import, so they are imported where they are used.


@pytest.mark.slow
@pytest.mark.parametrize("http", [CHAT, RESPONSES])
def test_openais_sdk_reads_an_entry(http: Any) -> None:
    from openai.types import Model

    assert Model.model_validate(http.write_model_entry(FULL)).owned_by == "openai"
    assert Model.model_validate(http.write_model_entry(ModelInfo("m"))).created == 0


def test_an_anthropic_list() -> None:
    body = MESSAGES.write_model_list((FULL,), {})
    sample = json.loads((material.SAMPLES / "anthropic" / "models_list.json").read_text())
    assert body.keys() == sample.keys()
    assert body["data"][0].keys() == sample["data"][0].keys()


@pytest.mark.slow
def test_anthropics_sdk_reads_an_entry() -> None:
    from anthropic.types import ModelInfo

    info = ModelInfo.model_validate(MESSAGES.write_model_entry(FULL))
    assert (info.id, info.created_at.isoformat()) == ("openai/gpt-5.5", "2026-01-01T00:00:00+00:00")
    assert (info.max_input_tokens, info.max_tokens) == (400_000, 128_000)
    assert info.capabilities is None


@pytest.mark.slow
def test_what_a_model_can_do_in_an_anthropic_list() -> None:
    from anthropic.types import ModelInfo

    info = ModelInfo.model_validate(MESSAGES.write_model_entry(ABLE))
    can = info.capabilities
    assert can is not None
    assert (can.image_input.supported, can.pdf_input.supported) == (True, False)
    assert (can.thinking.supported, can.thinking.types.enabled.supported) == (True, True)
    assert (can.effort.low.supported, can.effort.medium.supported, can.effort.high.supported) == (True, False, True)
    assert not can.server_tools.web_search.supported
    dull = replace(ABLE, facts=replace(ABLE.facts, reasoning_efforts=()))
    info = ModelInfo.model_validate(MESSAGES.write_model_entry(dull))
    assert info.capabilities is not None
    assert not info.capabilities.thinking.supported
    own = {"effort": {"supported": False}, "image_input": {"supported": True}}
    assert MESSAGES.write_model_entry(replace(ABLE, capabilities=own))["capabilities"] == own


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ({}, "m0 m1 m2 m3 m4", False),
        ({"limit": "2"}, "m0 m1", True),
        ({"limit": "2", "after_id": "m1"}, "m2 m3", True),
        ({"limit": "2", "after_id": "m3"}, "m4", False),
        ({"limit": "2", "after_id": "m4"}, "", False),
        ({"limit": "2", "before_id": "m3"}, "m1 m2", True),
        ({"limit": "2", "before_id": "m1"}, "m0", False),
        ({"limit": "0"}, "m0", True),
        ({"limit": "x" * 9}, "m0 m1 m2 m3 m4", False),
        ({"limit": "9" * 5000}, "m0 m1 m2 m3 m4", False),
        ({"after_id": "gone"}, "m0 m1 m2 m3 m4", False),
    ],
)
def test_an_anthropic_page(query: dict[str, str], ids: str, more: bool) -> None:
    body = MESSAGES.write_model_list(CARDS, query)
    listed = [entry["id"] for entry in body["data"]]
    assert (listed, body["has_more"]) == (ids.split(), more)
    assert (body["first_id"], body["last_id"]) == ((listed[0], listed[-1]) if listed else (None, None))


def test_a_gemini_list() -> None:
    assert GEMINI.write_model_list((FULL,), {}) == {
        "models": [
            {
                "name": "models/openai/gpt-5.5",
                "version": "001",
                "displayName": "openai/gpt-5.5",
                "supportedGenerationMethods": ["generateContent", "countTokens"],
                "inputTokenLimit": 400_000,
                "outputTokenLimit": 128_000,
            }
        ]
    }
    for card, thinks in ((ABLE, True), (replace(ABLE, facts=replace(ABLE.facts, reasoning_efforts=())), False)):
        assert GEMINI.write_model_entry(card)["thinking"] is thinks


@pytest.mark.slow
def test_googles_sdk_reads_an_entry() -> None:
    from google.genai.types import Model

    listed = Model.model_validate({"name": GEMINI.write_model_entry(ModelInfo("m"))["name"]})
    assert listed.name == "models/m"


def test_gemini_pages_follow_their_tokens() -> None:
    seen: list[str] = []
    query = {"pageSize": "2"}
    for _ in range(9):
        body = GEMINI.write_model_list(CARDS, query)
        seen += [entry["displayName"] for entry in body["models"]]
        if "nextPageToken" not in body:
            break
        query["pageToken"] = body["nextPageToken"]
    assert seen == [card.id for card in CARDS]
    for token in ("x", "9" * 5000, "-1"):
        assert GEMINI.write_model_list(CARDS, {"pageToken": token})["models"]


def test_a_unified_list() -> None:
    assert UNIFIED.write_model_list((FULL, ModelInfo("m")), {}) == {
        "models": [
            {
                "id": "openai/gpt-5.5",
                "owner": "openai",
                "created": 1767225600,
                "max_input_tokens": 400_000,
                "max_output_tokens": 128_000,
            },
            {"id": "m"},
        ]
    }
    assert json.loads(encode(UNIFIED.write_model_entry(ABLE))) == {
        **UNIFIED.write_model_entry(FULL),
        "input_modalities": ["text", "image"],
        "output_modalities": ["text"],
        "tools": True,
        "parallel_tools": False,
        "reasoning_efforts": ["none", "low", "high"],
    }


# --- counting -------------------------------------------------------------------------------------------------------

COUNTS: list[tuple[str, str, Any]] = [
    ("openai-responses", "/v1/responses/input_tokens", {"object": "response.input_tokens", "input_tokens": 7}),
    ("anthropic", "/v1/messages/count_tokens", {"input_tokens": 7}),
    ("gemini", "/v1beta/models/m:countTokens", {"totalTokens": 7}),
]


@pytest.mark.parametrize(("name", "path", "answer"), COUNTS)
def test_a_count_is_asked_for_and_answered(name: str, path: str, answer: Any) -> None:
    count = find_codec(name).http.token_count
    assert count is not None
    assert count.path("m") == path
    assert count.write_count(7) == answer
    assert count.read_count(answer) == 7
    assert count.read_count(dict.fromkeys(answer, "7")) == 7
    for wrong in (None, [], {}, "7", *(dict.fromkeys(answer, value) for value in ("many", True, -7, 0.5, 10**30))):
        assert count.read_count(wrong) is None


def test_there_is_no_count_in_the_others() -> None:
    assert CHAT.token_count is None
    assert UNIFIED.token_count is None


def test_the_body_of_a_count_holds_what_the_endpoint_takes() -> None:
    assert MESSAGES.token_count is not None
    assert RESPONSES.token_count is not None
    body = {"model": "a", "max_tokens": 5, "messages": [], "tools": [], "stream": True, "temperature": 1}
    assert MESSAGES.token_count.write_body(body, "b") == {"model": "b", "messages": [], "tools": []}
    items = {"model": "a", "input": "x", "store": False, "max_output_tokens": 5, "tools": []}
    assert RESPONSES.token_count.write_body(items, "b") == {"model": "b", "input": "x", "tools": []}


def test_a_gemini_count_asks_for_contents_or_for_a_whole_request() -> None:
    count = GEMINI.token_count
    assert count is not None
    contents = [{"role": "user", "parts": [{"text": "x"}]}]
    whole = {"contents": contents, "systemInstruction": {"parts": [{"text": "y"}]}, "tools": []}
    assert count.read_body({"contents": contents}) == {"contents": contents}
    assert count.read_body({"generateContentRequest": {"model": "models/m", **whole}}) == whole
    assert count.read_body({"generate_content_request": {"model": "models/m", **whole}}) == whole
    assert count.write_body({"contents": contents}, "m") == {"contents": contents}
    assert count.write_body(whole, "m") == {"generateContentRequest": {"model": "models/m", **whole}}


# --- framings -------------------------------------------------------------------------------------------------------

STREAMS = [path for path in material.sample_streams("gemini") if not path.stem.startswith(("interactions", "error"))]


def array(data: bytes, size: int) -> bytes:
    framing = GEMINI.make_framing_converter("array")
    assert framing is not None
    assert framing.content_type == "application/json"
    pieces = [framing.feed(data[at : at + size]) for at in range(0, len(data), size)]
    return b"".join(pieces) + framing.close()


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_events_become_one_array_however_they_are_cut(path: Path) -> None:
    data = path.read_bytes()
    splitter = sse.SseSplitter()
    chunks = [json.loads(frame.data) for frame in (*splitter.feed(data), *splitter.close())]
    whole = array(data, len(data))
    assert json.loads(whole) == chunks
    assert len(chunks) == 1 or b",\r\n{" in whole
    for size in (1, 2, 7, 100):
        assert array(data, size) == whole


def test_each_chunk_goes_out_as_it_comes() -> None:
    framing = GEMINI.make_framing_converter("array")
    assert framing is not None
    assert framing.feed(b'data: {"a":1}\r\n\r\n') == b'[{"a":1}'
    assert framing.feed(b'data: {"b":') == b""
    assert framing.feed(b'2}\n\ndata: {"c":3}\n\n') == b',\r\n{"b":2},\r\n{"c":3}'
    assert framing.close() == b"]"


def test_an_error_is_an_element_and_nothing_is_an_empty_array() -> None:
    sample = json.loads((material.SAMPLES / "gemini" / "error_400.array.json").read_text())
    assert json.loads(array(sse.write_data_frame(json.dumps(sample[0]).encode()), 10)) == sample
    assert array(b"", 1) == b"[]"


def test_the_array_is_read_as_the_events_are() -> None:
    data = (material.SAMPLES / "gemini" / "function_call.sse").read_bytes()
    readers = [find_codec("gemini").make_stream_reader(), find_codec("gemini").make_stream_reader()]
    events, elements = (
        list(reader.feed(given) + reader.close()) for reader, given in zip(readers, (data, array(data, 3)), strict=True)
    )
    assert len(events) > 3
    assert [type(event) for event in events] == [type(event) for event in elements]


@pytest.mark.parametrize("name", [name for name in CODECS if name != "gemini"])
def test_others_have_one_framing(name: str) -> None:
    assert find_codec(name).http.make_framing_converter("array") is None
    assert GEMINI.make_framing_converter("") is None


# --- what a model can be asked --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "with_tools"),
    [
        ("gpt-4o", True),
        ("gpt-5", True),
        ("gpt-5.3", True),
        ("gpt-5.4", False),
        ("gpt-5.4-mini-2026-03-01", False),
        ("gpt-5.5", False),
        ("gpt-5.6", False),
        ("gpt-6-sol", False),
        ("gpt-6-luna", False),
        ("gpt-6-astra", False),
        ("gpt-6.1-sol", False),
        ("openai/gpt-6-astra", True),
        ("openai/gpt-5.5", True),
        ("gpt-oss-120b", True),
        ("deepseek-chat", True),
    ],
)
def test_newer_models_take_tools_elsewhere(model: str, with_tools: bool) -> None:
    assert find_codec("openai-chat").supports_model(model, True) is with_tools
    assert find_codec("openai-chat").supports_model(model, False) is True
    assert all(find_codec(name).supports_model(model, True) for name in CODECS if name != "openai-chat")
