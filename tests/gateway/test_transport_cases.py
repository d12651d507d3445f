"""Reported cases, section O: errors and transport. Every test bears the number of its case."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator

import anthropic
import openai
import pytest

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENTS,
    PROVIDERS,
    RawAnswer,
    ScriptedConnection,
    Served,
    answer,
    ask,
    body_of,
    busy_answer,
    call,
    error_frame,
    error_of,
    frames,
    is_complete,
    is_failure,
    open_call,
    opening_frames,
    play_script,
    refusal,
    request_of,
    stage,
    stream_steps,
    text_of,
    whole_answer,
    write_chunked,
)
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

RULES = """
[models.reserved]
provider = "anthropic"
model = "claude-sonnet-4-5-s901x"
fallbacks = ["reserve"]
[models.reserve]
provider = "chat"
model = "gpt-4.1-s902x"
"""


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("reported"), more=RULES) as staged:
        yield staged


# --- 165 ---


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", ["openai-chat", "openai-responses"])
@pytest.mark.parametrize("how", ["failed", "dropped"])
def test_case_165_a_failure_inside_a_200_is_no_empty_success(
    served: Served, client: str, provider: str, how: str
) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(provider), end=False))
        peer.wait_for_release()
        if how == "failed":
            peer.chunk(error_frame(provider), b"")

    scene = served.scene(provider, play)
    line = open_call(served, client, scene.model, True)
    line.start()
    first = line.read_until(b"Hel")
    scene.go.set()
    got = RawAnswer(200, {}, first + line.response.read())
    line.connection.close()
    assert is_failure(client, got.frames)
    assert not is_complete(client, got.frames)


def test_case_165_the_official_sdks_raise(served: Served) -> None:
    cut = served.scene(
        "openai-responses", lambda peer: peer.send(write_chunked(*opening_frames("openai-responses"), end=False))
    )
    turns = [{"role": "user", "content": "Hi"}]
    with anthropic.Anthropic(base_url=served.url, api_key="x", max_retries=0) as claude:
        events = claude.messages.create(model=cut.model, max_tokens=9, messages=turns, stream=True)
        with pytest.raises(anthropic.APIError):
            list(events)
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="x", max_retries=0) as sdk:
        chunks = sdk.chat.completions.create(model=cut.model, messages=turns, stream=True)
        with pytest.raises(openai.APIError):
            list(chunks)


# --- 166 ---


@pytest.mark.parametrize("client", CLIENTS)
def test_case_166_an_error_event_is_read(served: Served, client: str) -> None:
    scene = served.scene("anthropic", write_chunked(frames("anthropic")[0], error_frame("anthropic")))
    got = call(served, client, scene.model, True)
    assert got.status == (529 if client == "anthropic" else 503)
    assert "Too busy just now." in error_of(client, got)["message"]


# --- 167 ---


@pytest.mark.parametrize("client", CLIENTS)
def test_case_167_an_overload_before_any_content_is_failed_over(served: Served, client: str) -> None:
    first = served.scene("anthropic", write_chunked(frames("anthropic")[0], error_frame("anthropic")))
    second = served.scene("openai-chat", stream_steps("openai-chat"))
    served.wire.scenes |= {b"s901x": first, b"s902x": second}
    got = call(served, client, "reserved", True)
    assert text_of(client, got, True) == "Hello there."
    assert got.headers["x-toolwire-attempts"] == "anthropic=529, chat=ok"


# --- 169 ---


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_case_169_retry_headers_are_not_lost(served: Served, client: str, provider: str) -> None:
    kind = {"anthropic": "rate_limit_error", "gemini": "RESOURCE_EXHAUSTED"}.get(provider, "requests")
    refused = answer(
        429, refusal(provider, 429, kind, "Slow down."), retry_after="17", anthropic_ratelimit_unified_status="rejected"
    )
    got = call(served, client, served.scene(provider, refused).model, False)
    assert (got.status, got.headers["retry-after"]) == (429, "17")
    if client == provider == "anthropic":
        assert got.headers["anthropic-ratelimit-unified-status"] == "rejected"


# --- 170 ---


@pytest.mark.parametrize("provider", PROVIDERS)
def test_case_170_an_overload_is_an_overload(served: Served, provider: str) -> None:
    got = call(served, "anthropic", served.scene(provider, busy_answer(provider)).model, False)
    assert (got.status, error_of("anthropic", got)["type"]) == (529, "overloaded_error")


# --- 171 ---


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_case_171_an_unknown_type_of_error_is_a_bad_request(served: Served, client: str, provider: str) -> None:
    kind = "BRAND_NEW" if provider == "gemini" else "brand_new_error"
    scene = served.scene(provider, answer(400, refusal(provider, 400, kind, "No.")))
    got = call(served, client, scene.model, False)
    assert got.status == 400
    assert served.line(got.id)["failure"] == "invalid"


# --- 173 ---


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_case_173_a_client_that_leaves_cancels_its_call(served: Served, provider: str, when: str, stream: bool) -> None:
    def play(peer: ScriptedConnection) -> None:
        if when == "after":
            peer.send(write_chunked(*opening_frames(provider), end=False) if stream else whole_answer(provider)[:-30])
        peer.wait_for_close()

    scene = served.scene(provider, play)
    line = open_call(served, "anthropic", scene.model, stream, {"x-request-id": f"case-173-{scene.mark}"})
    if when == "after" and stream:
        line.start()
        line.read_until(b"Hel")
    assert scene.reached.wait(PATIENCE)
    line.disconnect()
    assert scene.gone.wait(PATIENCE)
    assert len(scene.asked) == 1
    assert served.line(f"case-173-{scene.mark}")["client_disconnected"] is True


# --- 174 ---


@pytest.mark.parametrize(("encoding", "pack"), [("zstd", zstd.compress), ("gzip", gzip.compress)])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_case_174_packed_requests_of_codex_are_read(served: Served, provider: str, encoding: str, pack: object) -> None:
    scene = served.scene(provider, play_script(provider, True))
    body = encode_json(request_of("openai-responses", scene.model, True)).encode()
    headers = {"content-encoding": encoding, "originator": "codex_cli_rs"}
    got = ask(served.port, "POST", "/v1/responses", pack(body), headers)  # type: ignore[operator]
    assert text_of("openai-responses", got, True) == "Hello there."


# --- 175 ---


def test_case_175_compaction_works_whatever_the_provider_speaks(served: Served) -> None:
    """The provider's own where it has one; elsewhere the model is asked for a summary, and its envelope leads back."""
    said = [{"role": "user", "content": "Remember the word plover."}]
    scene = served.scene("openai-responses", answer(200, b'{"object":"response.compaction"}'))
    got = ask(served.port, "POST", "/v1/responses/compact", encode_json({"model": scene.model, "input": said}).encode())
    assert got.json() == {"object": "response.compaction"}
    for provider in ("anthropic", "gemini", "openai-chat"):
        scene = served.scene(provider, whole_answer(provider, "The word is plover."))
        got = ask(
            served.port, "POST", "/v1/responses/compact", encode_json({"model": scene.model, "input": said}).encode()
        )
        assert got.status == 200
        assert b"Remember the word plover." in scene.asked[0].body
        kept = got.json()["output"]
        assert kept[-1]["type"] == "compaction"
        after = encode_json(
            {"model": scene.model, "input": [*kept, {"role": "user", "content": "Which word?"}]}
        ).encode()
        assert ask(served.port, "POST", "/v1/responses", after).status == 200
        assert b"The word is plover." in scene.asked[1].body


# --- 177 ---

ODD = 'Grüße 🌍 你好 "\\ ende'


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_case_177_letters_that_are_cut_in_two_stay_whole(served: Served, client: str, provider: str, size: int) -> None:
    says = ScriptedAnswer(ODD, (("write_file", {"content": ODD}),))
    data = b"".join(frame.encode() for frame in PEERS[provider].write_stream(body_of(provider, says)))
    scene = served.scene(provider, write_chunked(*(data[at : at + size] for at in range(0, len(data), size))))
    tool = {"name": "write_file", "description": "Writes."}
    schema = {"type": "object", "properties": {"content": {"type": "string", "description": "All of it."}}}
    tools = {
        "openai-chat": [{"type": "function", "function": {**tool, "parameters": schema}}],
        "openai-responses": [{"type": "function", **tool, "parameters": schema}],
        "anthropic": [{**tool, "input_schema": schema}],
        "gemini": [{"functionDeclarations": [{**tool, "parameters": schema}]}],
        "unified": [{**tool, "parameters": schema}],
    }
    got = call(served, client, scene.model, True, tools=tools[client])
    assert text_of(client, got, True).startswith(ODD)
    assert "�" not in got.data.decode()
    assert "\\ufffd" not in got.data.decode().lower()
    assert ODD in _arguments(client, got)


def _arguments(client: str, got: RawAnswer) -> str:
    """The value that the call was given, from all fragments of its arguments."""
    fragments = ""
    for frame in got.frames:
        data = frame.data
        if not isinstance(data, dict):
            continue
        if client == "openai-chat":
            calls = [one for choice in data["choices"] for one in choice["delta"].get("tool_calls") or ()]
            fragments += "".join(one["function"].get("arguments", "") for one in calls)
        elif client == "openai-responses":
            fragments += data["delta"] if data["type"] == "response.function_call_arguments.delta" else ""
        elif client == "anthropic":
            fragments += (data.get("delta") or {}).get("partial_json", "")
        elif client == "unified":
            fragments += data.get("arguments", "") if data["type"] == "tool_call" else ""
        else:
            parts = [part for one in data["candidates"] for part in one["content"].get("parts", ())]
            fragments += "".join(json.dumps(part["functionCall"]["args"]) for part in parts if "functionCall" in part)
    return str(json.loads(fragments)["content"])


# --- 178 ---


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("client", CLIENTS)
def test_case_178_a_provider_is_asked_in_what_it_speaks(served: Served, client: str, stream: bool) -> None:
    scene = served.scene("openai-responses", play_script("openai-responses", stream))
    assert text_of(client, call(served, client, scene.model, stream), stream) == "Hello there."
    assert scene.asked[0].target == "/v1/responses"
