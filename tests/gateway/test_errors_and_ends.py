"""Errors and endings: whatever a provider does, its client sees a true end in its own protocol's shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENTS,
    PROVIDER_KEY,
    PROVIDERS,
    STREAM_HEAD,
    Play,
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
    path_of,
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
from waits import PATIENCE, free_port

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
PAIRS = [pytest.mark.parametrize("provider", PROVIDERS), pytest.mark.parametrize("client", CLIENTS)]


def pairs(test: Any) -> Any:
    for mark in PAIRS:
        test = mark(test)
    return test


UNREACHABLE = {"closed": "http://127.0.0.1:{closed}", "nowhere": "http://no-such-host.invalid", "secure": "{secure}"}
SHORT = "retries = 0\ncooldown_after = 1000000\n[server.timeouts]\n"


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    closed = free_port()
    more = "".join(
        f'[providers.{name}-{protocol}]\nprotocols = ["{protocol}"]\napi_key = "{PROVIDER_KEY}"\nbase_url = "{url}"\n'
        for name, url in UNREACHABLE.items()
        for protocol in ("openai-chat", "anthropic")
    )
    with stage(tmp_path_factory.mktemp("endings"), more=more.replace("{closed}", str(closed))) as staged:
        yield staged


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with little patience, for providers that do not begin to answer."""
    with stage(tmp_path_factory.mktemp("hasty"), SHORT + "first_byte = 0.1") as staged:
        yield staged


@pytest.fixture(scope="module")
def hasty_later(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with little patience, for providers that begin, however late, and then fall silent."""
    with stage(tmp_path_factory.mktemp("later"), SHORT + "between_bytes = 0.1") as staged:
        yield staged


# --- refusals ---

LIMITED = {
    "openai-chat": (429, "requests", "rate_limit_exceeded"),
    "openai-responses": (429, "requests", "rate_limit_exceeded"),
    "anthropic": (429, "rate_limit_error", None),
    "gemini": (429, "RESOURCE_EXHAUSTED", None),
}
SAID = {
    "anthropic": ("type", "rate_limit_error"),
    "gemini": ("status", "RESOURCE_EXHAUSTED"),
    "unified": ("type", "rate_limit"),
    "openai-chat": ("code", "rate_limit_exceeded"),
    "openai-responses": ("code", "rate_limit_exceeded"),
}


@STREAMS
@pairs
def test_a_rate_limit_keeps_its_status_its_words_and_its_wait(
    served: Served, client: str, provider: str, stream: bool
) -> None:
    status, kind, code = LIMITED[provider]
    scene = served.scene(provider, answer(status, refusal(provider, status, kind, "Slow down.", code), retry_after="7"))
    got = call(served, client, scene.model, stream)
    assert got.status == 429
    error = error_of(client, got)
    key, word = SAID[client]
    if client != provider:
        assert error[key] == word
    assert "Slow down." in error["message"]
    assert got.headers["retry-after"] == "7"
    if client == "gemini" and provider != "gemini":
        assert [row["retryDelay"] for row in error["details"] if "retryDelay" in row] == ["7s"]
    assert got.headers["content-type"].startswith("application/json")
    assert served.line(got.id)["failure"] == "rate"


@pytest.mark.parametrize("client", ["openai-chat", "openai-responses", "anthropic", "unified"])
def test_retry_info_becomes_a_header(served: Served, client: str) -> None:
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "12.5s"}]
    body = {"error": {"code": 429, "message": "Slow down.", "status": "RESOURCE_EXHAUSTED", "details": details}}
    scene = served.scene("gemini", answer(429, encode_json(body).encode()))
    got = call(served, client, scene.model, False)
    assert (got.status, got.headers["retry-after"]) == (429, "13")


OVERFLOWS = {
    "openai-chat": (
        "invalid_request_error",
        "This model's maximum context length is 128000 tokens.",
        "context_length_exceeded",
    ),
    "openai-responses": (
        "invalid_request_error",
        "Your input exceeds the context window of this model.",
        "context_length_exceeded",
    ),
    "anthropic": ("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", None),
    "gemini": (
        "INVALID_ARGUMENT",
        "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
        None,
    ),
}


@STREAMS
@pairs
def test_an_overflow_has_the_words_that_agents_look_for(
    served: Served, client: str, provider: str, stream: bool
) -> None:
    kind, message, code = OVERFLOWS[provider]
    scene = served.scene(provider, answer(400, refusal(provider, 400, kind, message, code)))
    got = call(served, client, scene.model, stream)
    assert got.status == 400
    error = error_of(client, got)
    if client == "anthropic":
        assert "prompt is too long" in error["message"]
    elif client == "gemini":
        assert "exceeds the maximum number of tokens" in error["message"]
    elif client == "unified":
        assert error["type"] == "context_window"
    else:
        assert error["code"] == "context_length_exceeded"


@pytest.mark.parametrize("provider", [name for name in PROVIDERS if name != "anthropic"])
def test_anthropics_tool_runner_hears_that_its_thread_is_not_there(served: Served, provider: str) -> None:
    """Then it sends the whole conversation again; at any other error it gives up."""
    thread = {"type": "continue", "previous_message_id": "msg_1"}
    scene = served.scene(provider)
    got = call(served, "anthropic", scene.model, False, thread=thread)
    error = error_of("anthropic", got)
    assert (got.status, error["type"], error["details"]) == (404, "not_found_error", {"error_code": "thread_not_found"})


@pytest.mark.parametrize("provider", PROVIDERS)
def test_codex_hears_of_an_overflow_in_its_stream(served: Served, provider: str) -> None:
    """There it makes room, and at a status it gives up."""
    kind, message, code = OVERFLOWS[provider]
    scene = served.scene(provider, answer(400, refusal(provider, 400, kind, message, code)))
    got = call(served, "openai-responses", scene.model, True, {"user-agent": "codex_exec/0.166.0 (Debian 12)"})
    assert is_failure("openai-responses", got.frames)
    assert got.frames[-1].data["response"]["error"]["code"] == "context_length_exceeded"
    assert served.line(got.id)["failure"] == "context"


BUSY_SEEN = {
    "anthropic": (529, "overloaded_error"),
    "gemini": (503, "UNAVAILABLE"),
    "openai-chat": (503, ""),
    "openai-responses": (503, ""),
    "unified": (503, "overloaded"),
}


@STREAMS
@pairs
def test_an_overload_is_an_overload_everywhere(served: Served, client: str, provider: str, stream: bool) -> None:
    scene = served.scene(provider, busy_answer(provider))
    got = call(served, client, scene.model, stream)
    status, word = BUSY_SEEN[client]
    assert got.status == status
    error = error_of(client, got)
    assert not word or word in (error.get("type"), error.get("status"))


@pairs
def test_an_unknown_type_of_error_is_no_fault_of_the_server(served: Served, client: str, provider: str) -> None:
    scene = served.scene(
        provider, answer(400, refusal(provider, 400, "brand_new_error" if provider != "gemini" else "BRAND_NEW", "No."))
    )
    got = call(served, client, scene.model, False)
    assert got.status == 400
    assert "No." in error_of(client, got)["message"]


def test_rate_limit_headers_are_translated(served: Served) -> None:
    theirs = {
        "x_ratelimit_limit_requests": "100",
        "x_ratelimit_remaining_requests": "99",
        "x_ratelimit_reset_requests": "6m0s",
    }
    scene = served.scene("openai-chat", whole_answer("openai-chat", **theirs))
    got = call(served, "anthropic", scene.model, False)
    assert got.headers["anthropic-ratelimit-requests-limit"] == "100"
    assert got.headers["anthropic-ratelimit-requests-remaining"] == "99"
    assert got.headers["anthropic-ratelimit-requests-reset"].endswith("Z")
    ours = {
        "anthropic_ratelimit_tokens_limit": "8000",
        "anthropic_ratelimit_tokens_remaining": "7000",
        "anthropic_ratelimit_unified_status": "allowed",
    }
    scene = served.scene("anthropic", whole_answer("anthropic", **ours))
    got = call(served, "openai-chat", scene.model, False)
    assert (got.headers["x-ratelimit-limit-tokens"], got.headers["x-ratelimit-remaining-tokens"]) == ("8000", "7000")
    assert not [name for name in got.headers if name.startswith("anthropic")]
    got = call(served, "anthropic", scene.model, False)
    assert got.headers["anthropic-ratelimit-unified-status"] == "allowed"


# --- failures inside a stream ---


@pairs
def test_a_failure_after_content_ends_the_stream_as_a_failure(served: Served, client: str, provider: str) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(provider), end=False))
        peer.wait_for_release()
        peer.chunk(error_frame(provider), b"")

    scene = served.scene(provider, play)
    line = open_call(served, client, scene.model, True)
    response = line.start()
    first = line.read_until(b"Hel")
    scene.go.set()
    got = RawAnswer(response.status, {}, first + response.read())
    line.connection.close()
    assert got.status == 200
    assert is_failure(client, got.frames), got.data
    assert not is_complete(client, got.frames), got.data
    assert "busy" in got.data.decode()
    told = served.line(str(response.getheader("x-request-id")))
    assert (told["failure"], told["level"], told["status"]) == ("overloaded", "error", 200)


@pairs
def test_a_failure_that_comes_with_the_content_is_still_a_status(served: Served, client: str, provider: str) -> None:
    """Nothing has reached the client yet."""
    scene = served.scene(provider, write_chunked(*opening_frames(provider), error_frame(provider)))
    got = call(served, client, scene.model, True)
    assert got.status == BUSY_SEEN[client][0]
    assert "busy" in error_of(client, got)["message"]


@pairs
def test_a_failure_before_content_is_a_status(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, write_chunked(error_frame(provider)))
    got = call(served, client, scene.model, True)
    assert got.status == BUSY_SEEN[client][0]
    assert "busy" in error_of(client, got)["message"]
    assert got.headers["content-type"].startswith("application/json")


def _send_beginning(peer: ScriptedConnection, provider: str, more: bytes, end: bool) -> None:
    peer.send(write_chunked(*opening_frames(provider), *([more] if more else ()), end=end))


CUTS = {
    "mid-frame": (b'data: {"half', False),
    "between-frames": (b"", False),
    "clean end in mid-frame": (b'data: {"half', True),
    "clean end without the last event": (b"", True),
}


@pytest.mark.parametrize("cut", CUTS)
@pairs
def test_a_cut_stream_is_a_failure(served: Served, client: str, provider: str, cut: str) -> None:
    more, end = CUTS[cut]
    scene = served.scene(provider, lambda peer: _send_beginning(peer, provider, more, end))
    got = call(served, client, scene.model, True)
    assert got.status == 200
    assert got.whole
    assert is_failure(client, got.frames), got.data
    assert not is_complete(client, got.frames), got.data
    assert text_of(client, got, True)
    assert b'"half' not in got.data
    assert end or b"connection error" in got.data
    assert served.line(got.id)["failure"]


LAST_FRAMES = {
    "openai-chat": b"data: [DONE]\n\n",
    "anthropic": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}


@pytest.mark.parametrize("protocol", LAST_FRAMES)
def test_a_stream_without_its_last_frame_gets_one(protocol: str, tmp_path: Path) -> None:
    """The answer is complete: its finish reason has come. But Anthropic's SDK for JavaScript waits for `message_stop`."""
    pieces = [frame for frame in frames(protocol) if b"[DONE]" not in frame and b"message_stop" not in frame]
    whole_frames, last = b"".join(pieces), LAST_FRAMES[protocol]
    with stage(tmp_path) as passing:
        for end, expected in ((b"", last), (b"\n", b"\n" + last), (b": bye\n\n", b": bye\n\n" + last), (last, last)):
            scene = passing.scene(protocol, write_chunked(*filter(None, (*pieces, end))))
            assert call(passing, protocol, scene.model, True).data == whole_frames + expected
        scene = passing.scene(protocol, write_chunked(*pieces[:-1], pieces[-1].rstrip()))
        assert call(passing, protocol, scene.model, True).data == whole_frames + last


BROKEN_OFF = ["error", "abort", "insufficient_system_resource", "network_error"]
"""What OpenRouter, vLLM and SGLang, DeepSeek and Zhipu call it."""


def broken_off(test: Any) -> Any:
    for mark in (
        pytest.mark.parametrize("reason", BROKEN_OFF),
        pytest.mark.parametrize("client", [client for client in CLIENTS if client != "openai-chat"]),
    ):
        test = mark(test)
    return test


@broken_off
def test_a_chat_server_whose_model_broke_off_has_failed(served: Served, client: str, reason: str) -> None:
    """The finish reason says it: half an answer must not become the end of a turn."""
    text = encode_json(body_of("openai-chat", ScriptedAnswer("Half an ans"))).replace('"stop"', f'"{reason}"')
    scene = served.scene("openai-chat", answer(200, text.encode()))
    got = call(served, client, scene.model, False)
    assert got.status == 502
    assert reason in error_of(client, got)["message"]


@broken_off
def test_a_stream_of_a_chat_server_whose_model_broke_off_is_a_failure(served: Served, client: str, reason: str) -> None:
    pieces = [frame.replace(b'"stop"', f'"{reason}"'.encode()) for frame in frames("openai-chat", "Half an ans")]

    def play(peer: ScriptedConnection) -> None:
        peer.send(STREAM_HEAD)
        peer.chunk(*pieces[:2])
        peer.wait_for_release()
        peer.chunk(*pieces[2:], b"")

    scene = served.scene("openai-chat", play)
    line = open_call(served, client, scene.model, True)
    response = line.start()
    scene.go.set()
    seen = RawAnswer(200, {}, response.read()).frames
    line.disconnect()
    assert is_failure(client, seen)
    assert not is_complete(client, seen)


@pytest.mark.parametrize("details", [None, {"reason": "steered"}, {"reason": "max_output_tokens"}])
@STREAMS
@pytest.mark.parametrize(
    ("client", "finish"),
    [
        ("openai-chat", b'"finish_reason":"length"'),
        ("anthropic", b'"stop_reason":"max_tokens"'),
        ("gemini", b'"finishReason":"MAX_TOKENS"'),
    ],
)
def test_an_incomplete_answer_is_not_complete_whatever_the_reason(
    served: Served, client: str, finish: bytes, stream: bool, details: dict[str, str] | None
) -> None:
    ending = {"status": "incomplete", "incomplete_details": details}
    body = body_of("openai-responses", ScriptedAnswer("Half an ans")) | ending
    play = answer(200, encode_json(body).encode())
    if stream:
        end = encode_json({"type": "response.incomplete", "sequence_number": 99, "response": body}).encode()
        play = write_chunked(*frames("openai-responses", "Half an ans")[:-1], b"data: %b\n\n" % end)
    scene = served.scene("openai-responses", play)
    got = call(served, client, scene.model, stream)
    assert text_of(client, got, stream) == "Half an ans"
    assert finish in got.data


@STREAMS
@pytest.mark.parametrize("client", ["openai-chat", "openai-responses"])
def test_an_answer_that_has_paused_is_not_complete(served: Served, client: str, stream: bool) -> None:
    """Google ends an answer that its own SDKs would have continued with a token."""
    body = body_of("gemini", ScriptedAnswer("Half an ans"))
    body["candidates"][0] |= {"finishReason": "CONTINUATION", "continuationToken": "dG9rZW4="}
    text = encode_json(body).encode()
    scene = served.scene("gemini", write_chunked(b"data: %b\n\n" % text) if stream else answer(200, text))
    got = call(served, client, scene.model, stream)
    assert text_of(client, got, stream) == "Half an ans"
    assert {"openai-chat": b'"finish_reason":"length"', "openai-responses": b'"status":"incomplete"'}[
        client
    ] in got.data
    assert b'"response.completed"' not in got.data


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_cut_stream_as_an_array_ends_in_its_failure(served: Served, provider: str) -> None:
    """A failure that is told twice in a stream is one element of an array."""
    more, end = CUTS["between-frames"]
    scene = served.scene(provider, lambda peer: _send_beginning(peer, provider, more, end))
    path = path_of("gemini", scene.model, True).partition("?")[0]
    body = encode_json(request_of("gemini", scene.model, True)).encode()
    got = ask(served.port, "POST", path, body)
    chunks = json.loads(got.data)
    assert [("error" in chunk) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len(chunks) > 1


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_failure_behind_a_whole_call_is_told_once(served: Served, provider: str) -> None:
    """Gemini CLI runs a call that has come, whatever follows: told twice, it would ask again and run it twice."""
    calls = tuple(("find", {"word": word}) for word in ("one", "two", "three"))
    every = [frame.encode() for frame in PEERS[provider].write_stream(body_of(provider, ScriptedAnswer("", calls)))]
    scene = served.scene(provider, lambda peer: peer.send(write_chunked(*every[: len(every) // 2], end=False)))
    got = call(served, "gemini", scene.model, True)
    *_, before, last = got.frames
    assert "functionCall" in before.text
    assert "error" in last.data
    assert not last.other_lines


@pairs
def test_a_stream_cut_before_content_is_a_status(served: Served, client: str, provider: str) -> None:
    first = [] if provider == "gemini" else frames(provider)[:1]
    for play in (lambda peer: peer.send(write_chunked(*first, end=False)), write_chunked(*first)):
        scene = served.scene(provider, play)
        got = call(served, client, scene.model, True)
        assert got.status == 502, (got.status, got.data)
        error_of(client, got)


@pairs
def test_a_whole_answer_that_is_cut(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, lambda peer: peer.send(whole_answer(provider)[:-20]))
    got = call(served, client, scene.model, False)
    assert got.status == 502
    assert scene.model.partition("/")[0] in error_of(client, got)["message"]


SILENT = pytest.mark.parametrize(
    ("client", "provider"),
    sorted({*((client, "anthropic") for client in CLIENTS), *zip(PROVIDERS, PROVIDERS, strict=True)}),
)


@SILENT
def test_silence_in_mid_stream_is_a_failure(hasty_later: Served, client: str, provider: str) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(provider), end=False))
        peer.wait_for_close()

    scene = hasty_later.scene(provider, play)
    got = call(hasty_later, client, scene.model, True)
    assert is_failure(client, got.frames)
    assert not is_complete(client, got.frames)
    assert hasty_later.line(got.id)["failure"] == "deadline"
    assert scene.gone.wait(PATIENCE)


# --- no answer at all ---


@STREAMS
@SILENT
def test_a_provider_that_says_nothing_is_a_time_out(hasty: Served, client: str, provider: str, stream: bool) -> None:
    scene = hasty.scene(provider, ScriptedConnection.wait_for_close)
    got = call(hasty, client, scene.model, stream)
    assert got.status == 504
    assert f"`{scene.model.partition('/')[0]}`" in error_of(client, got)["message"]
    assert scene.gone.wait(PATIENCE)


@STREAMS
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("protocol", ["openai-chat", "anthropic"])
@pytest.mark.parametrize(("name", "word"), [("closed", "refused"), ("nowhere", "DNS"), ("secure", "TLS")])
def test_a_provider_that_cannot_be_reached(
    served: Served, client: str, protocol: str, name: str, word: str, stream: bool
) -> None:
    got = call(served, client, f"{name}-{protocol}/m", stream)
    assert got.status == 502
    message = error_of(client, got)["message"]
    assert f"`{name}-{protocol}`" in message
    assert word in message
    assert "check" in message


# --- answers of the wrong kind ---

STRANGE: dict[str, Play] = {
    "html": answer(200, b"<!doctype html><title>Welcome</title>", "text/html"),
    "empty": answer(200, b""),
    "array": answer(200, b"[1,2]"),
    "text": answer(200, b'"hello"'),
    "html as json": answer(200, b"<html>"),
    "redirect": answer(302, b"", location="https://elsewhere.example/"),
    "no content": b"HTTP/1.1 204 No Content\r\n\r\n",
    "garbage": lambda peer: peer.send(b"SSH-2.0-OpenSSH_9.6\r\n"),
}


@STREAMS
@pytest.mark.parametrize("strange", STRANGE)
@pairs
def test_what_is_no_answer_is_a_bad_gateway(
    served: Served, client: str, provider: str, strange: str, stream: bool
) -> None:
    scene = served.scene(provider, STRANGE[strange])
    got = call(served, client, scene.model, stream)
    assert got.status == 502, got.data
    message = error_of(client, got)["message"]
    assert f"`{scene.model.partition('/')[0]}`" in message
    assert "Welcome" not in message


NOT_ANSWERS = (
    '{"status":"ok"} {} {"detail":"gone"} {"choices":[]} {"choices":null} {"output":[]} {"content":[]} {"content":null}'
    ' {"candidates":[]} {"candidates":null} {"message":null} {"usage":{}} {"id":"x","model":"m"} null []'
    ' {"status":"in_progress","output":[]} {"output":[{}]}'
).split()
FRAMINGS = {
    "json": ("application/json", "%s"),
    "frame": ("text/event-stream", "data: %s\n\n"),
    "done": ("text/event-stream", "data: %s\n\ndata: [DONE]\n\n"),
}


@STREAMS
@pytest.mark.parametrize("framing", FRAMINGS)
@pairs
def test_a_200_that_is_not_an_answer_is_an_error(
    served: Served, client: str, provider: str, framing: str, stream: bool
) -> None:
    """Agents would take it for the end of the turn."""
    kind, frame = FRAMINGS[framing]
    for body in NOT_ANSWERS:
        scene = served.scene(provider, answer(200, (frame % body).encode(), kind))
        got = call(served, client, scene.model, stream)
        assert got.status == 502, (body, got.data)
        name = scene.model.partition("/")[0]
        assert f"the provider `{name}` at 127.0.0.1:" in error_of(client, got)["message"]
        assert got.headers["x-toolwire-provider"] == name


@pytest.mark.parametrize("status", [404, 500, 502])
@pairs
def test_an_error_page_of_something_in_between(served: Served, client: str, provider: str, status: int) -> None:
    scene = served.scene(provider, answer(status, b"<html><body>nginx says no</body></html>", "text/html"))
    got = call(served, client, scene.model, False)
    assert got.status == status
    error_of(client, got)


@pairs
def test_a_whole_answer_though_a_stream_was_asked_for(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, whole_answer(provider))
    got = call(served, client, scene.model, True)
    assert got.status == 200
    assert text_of(client, got, True) == "Hello there."
    assert is_complete(client, got.frames)
    assert served.line(got.id)["output_tokens"] == 12


@pairs
def test_a_stream_though_a_whole_answer_was_asked_for(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, stream_steps(provider))
    got = call(served, client, scene.model, False)
    assert got.status == 200, got.data
    assert got.headers["content-type"].startswith("application/json")
    assert text_of(client, got, False) == "Hello there."
    assert served.line(got.id)["output_tokens"] == 12


@pairs
def test_a_stream_that_breaks_though_a_whole_answer_was_asked_for(served: Served, client: str, provider: str) -> None:
    scene = served.scene(provider, write_chunked(*opening_frames(provider)))
    got = call(served, client, scene.model, False)
    assert got.status == 502
    error_of(client, got)


@pytest.mark.parametrize("client", CLIENTS)
def test_an_error_in_an_answer_that_says_200(served: Served, client: str) -> None:
    scene = served.scene("openai-chat", answer(200, refusal("openai-chat", 200, "server_error", "Broken.")))
    got = call(served, client, scene.model, False)
    assert got.status >= 500
    assert "Broken." in error_of(client, got)["message"]


@STREAMS
@pairs
def test_answers_that_are_packed(served: Served, client: str, provider: str, stream: bool) -> None:
    import gzip

    body = (
        b"".join(frames(provider))
        if stream
        else encode_json(body_of(provider, ScriptedAnswer("Hello there."))).encode()
    )
    kind = "text/event-stream" if stream else "application/json"
    scene = served.scene(provider, answer(200, gzip.compress(body), kind, content_encoding="gzip"))
    got = call(served, client, scene.model, stream)
    assert "content-encoding" not in got.headers
    assert text_of(client, got, stream) == "Hello there."
