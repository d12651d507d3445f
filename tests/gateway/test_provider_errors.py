"""Errors name the provider, its address and what to do, in the client's own protocol. The header `x-toolwire-provider`
names it on every answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as genai_errors

from gateway.raw_exchange import (
    CLIENTS,
    PROVIDER_KEY,
    PROVIDERS,
    RawAnswer,
    ScriptedConnection,
    Served,
    answer,
    ask,
    call,
    error_frame,
    error_of,
    open_call,
    opening_frames,
    play_script,
    refusal,
    stage,
    whole_answer,
    write_chunked,
)
from material import WHOLE_OR_STREAM, parametrize_pairwise
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE, free_port

PAIRS = list(product(CLIENTS, PROVIDERS))
"""Of one axis: a client that speaks the provider's protocol takes another path."""
HEADER = "x-toolwire-provider"
STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
SHORT = "retries = 0\ncooldown_after = 1000000\n[server.timeouts]\nfirst_byte = 0.1"

UNREACHABLE = {
    "refused": (
        "http://127.0.0.1:{closed}",
        "127.0.0.1:{closed} refused the connection: check that a server is running",
    ),
    "dns": ("http://no-such-host.invalid", "no-such-host.invalid:80 cannot be resolved: check the host"),
    "tls": ("{secure}", "no secure connection to 127.0.0.1:"),
}
OTHERS = f"""
[providers."münchen"]
protocols = ["openai-chat"]
base_url = "{{plain}}"
api_key = "{PROVIDER_KEY}"
[providers.gateway]
protocols = ["unified"]
base_url = "{{plain}}"
api_key = "{PROVIDER_KEY}"
"""


CLOSED = str(free_port())


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    more = "".join(
        f'[providers.{name}-{protocol}]\nprotocols = ["{protocol}"]\napi_key = "{PROVIDER_KEY}"\nbase_url = "{url}"\n'
        for name, (url, _) in UNREACHABLE.items()
        for protocol in PROVIDERS
    ).replace("{closed}", CLOSED)
    with stage(tmp_path_factory.mktemp("errors"), more=more + OTHERS) as staged:
        yield staged


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A gateway with little patience, for providers that are silent."""
    with stage(tmp_path_factory.mktemp("hasty"), SHORT) as staged:
        yield staged


# --- what a provider answers with -------------------------------------------------------------------------------------

GOOGLE_STATUS = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    422: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}
ANTHROPIC_TYPE = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}
HINTS = {
    401: ": check `api_key` of [providers.{name}])",
    403: ": check what `api_key` of [providers.{name}] may use)",
    404: ": check the model's name there, `{model}`, and its base_url)",
    422: ")",
    429: ": a limit of its account: wait 7 s, or add a fallback)",
    500: ": try again later, or add a fallback)",
    503: ": try again later, or add a fallback)",
}
"""What follows the provider's message, its name and its address."""
SHAPES: dict[str, Callable[[str, int], bytes]] = {
    "own": lambda protocol, status: answer(
        status,
        refusal(protocol, status, _type_of(protocol, status), "It said so."),
        **({"retry_after": "7"} if status == 429 else {}),
    ),
    "json": lambda protocol, status: _answer(status, b'{"detail":"It said so."}'),
    "page": lambda protocol, status: _answer(status, b"<html>It said so.</html>", "text/html"),
    "empty": lambda protocol, status: _answer(status, b""),
    "object": lambda protocol, status: _answer(status, b"{}"),
}
SAID_NOTHING = frozenset({"empty", "object"})


def _type_of(protocol: str, status: int) -> str:
    if protocol == "gemini":
        return GOOGLE_STATUS[status]
    return ANTHROPIC_TYPE[status] if protocol == "anthropic" else "some_error"


def _answer(status: int, body: bytes, kind: str = "application/json") -> bytes:
    return answer(status, body, kind, **({"retry_after": "7"} if status == 429 else {}))


def _shown_status(client: str, status: int) -> set[int]:
    """Anthropic says 529 where others say 503; 422 is OpenAI's."""
    return {status, *({529} if status == 503 else {400} if status == 422 else set())}


@parametrize_pairwise(
    {"client,provider": PAIRS, "status": HINTS.keys(), "shape": SHAPES.keys(), "stream": WHOLE_OR_STREAM}
)
def test_an_error_of_a_provider(
    served: Served, client: str, provider: str, shape: str, status: int, stream: bool
) -> None:
    play = SHAPES[shape](provider, status)
    scene = served.scene(provider, play)
    got = call(served, client, scene.model, stream)
    name, _, model = scene.model.partition("/")
    assert got.status in _shown_status(client, status)
    assert got.headers[HEADER] == name
    assert got.headers["content-type"].startswith("application/json")
    assert PROVIDER_KEY not in got.data.decode()
    assert status != 429 or got.headers["retry-after"] == "7"
    body = play.partition(b"\r\n\r\n")[2]
    place = f"the provider `{name}` at {served.wire.url.removeprefix('http://')}"
    hint = HINTS[status].format(name=name, model=model)
    if client == provider and shape in ("own", "json"):  # the provider's own error, with the same words behind its own
        named = encode_json(f"It said so. (from {place}{hint}")[1:-1].encode()
        assert json.loads(got.data) == json.loads(body.replace(b"It said so.", named))
        return
    message = error_of(client, got)["message"]
    said, _, rest = message.partition(" (from ")
    assert ("no explanation" if shape in SAID_NOTHING else "It said so.") in said
    if status == 404 and shape in SAID_NOTHING:
        assert "if it has no such path, set `protocols = [" in rest
    else:
        assert rest == f"{place}{hint}"


@parametrize_pairwise({"client,provider": PAIRS, "kind": UNREACHABLE.keys(), "stream": WHOLE_OR_STREAM})
def test_a_provider_that_cannot_be_reached(served: Served, client: str, provider: str, kind: str, stream: bool) -> None:
    got = call(served, client, f"{kind}-{provider}/m", stream)
    message = error_of(client, got)["message"]
    assert got.status == 502
    assert got.headers[HEADER] == f"{kind}-{provider}"
    assert f"the provider `{kind}-{provider}`" in message
    assert UNREACHABLE[kind][1].replace("{closed}", CLOSED) in message
    assert PROVIDER_KEY not in message


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_provider_that_is_silent(hasty: Served, client: str, provider: str) -> None:
    scene = hasty.scene(provider, ScriptedConnection.wait_for_close)
    got = call(hasty, client, scene.model, False)
    name = scene.model.partition("/")[0]
    assert (got.status, got.headers[HEADER]) == (504, name)
    message = error_of(client, got)["message"]
    assert f"the provider `{name}`" in message
    assert hasty.wire.url.removeprefix("http://") in message
    assert "see `first_byte` under [server.timeouts]" in message
    assert scene.gone.wait(PATIENCE)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_stream_that_fails_names_the_provider(served: Served, client: str, provider: str) -> None:
    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(provider), end=False))
        peer.wait_for_release()
        peer.chunk(error_frame(provider), b"")

    for script, is_own_frame in ((play, True), (write_chunked(*opening_frames(provider)), False)):
        scene = served.scene(provider, script)
        line = open_call(served, client, scene.model, True)
        response = line.start()
        data = line.read_until(b"Hel")
        scene.go.set()
        data += response.read()
        line.connection.close()
        name = scene.model.partition("/")[0]
        assert (response.status, response.getheader(HEADER)) == (200, name)
        is_named = f"the provider `{name}` at 127.0.0.1:" in data.decode()
        assert is_named != (client == provider and is_own_frame)  # within one protocol its own frame passes as it is


OVERFLOW = "prompt is too long: 210000 tokens > 200000 maximum"


USED_UP = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "23h59m0s"}


@pytest.mark.parametrize("limit", [{}, {"x-ratelimit-limit-requests": "2000"}], ids=["unsaid", "of-a-day"])
@pytest.mark.parametrize("client", ["openai-chat", "openai-responses"])
def test_headers_that_say_when_a_bucket_is_full_end_nothing(served: Served, client: str, limit: dict[str, str]) -> None:
    """A request may have room in seconds."""
    said = encode_json({"error": {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}}).encode()
    scene = served.scene("openai-chat", answer(429, said, **USED_UP, **limit))
    got = call(served, client, scene.model, False)
    assert got.status == 429
    assert json.loads(got.data)["error"]["code"] == "rate_limit_exceeded"
    assert "x-should-retry" not in got.headers
    if client == "openai-responses":  # a client of the same protocol gets the provider's headers
        assert got.headers["retry-after"] == ("44" if limit else "60")
    assert len(scene.asked) == 1


@pytest.mark.parametrize("client", [name for name in CLIENTS if name != "anthropic"])
def test_an_overflow_keeps_its_message(served: Served, client: str) -> None:
    """Agents read numbers from it, so nothing is added."""
    scene = served.scene("anthropic", answer(400, refusal("anthropic", 400, "invalid_request_error", OVERFLOW)))
    got = call(served, client, scene.model, False)
    assert OVERFLOW in error_of(client, got)["message"]
    assert "the provider" not in error_of(client, got)["message"]
    assert got.headers[HEADER] == "anthropic"


# --- the official SDKs ------------------------------------------------------------------------------------------------

OPENAI_ERRORS: dict[int, type[openai.APIStatusError]] = {
    401: openai.AuthenticationError,
    403: openai.PermissionDeniedError,
    404: openai.NotFoundError,
    429: openai.RateLimitError,
    500: openai.InternalServerError,
    502: openai.InternalServerError,
}
ANTHROPIC_ERRORS: dict[int, type[anthropic.APIStatusError]] = {
    401: anthropic.AuthenticationError,
    403: anthropic.PermissionDeniedError,
    404: anthropic.NotFoundError,
    429: anthropic.RateLimitError,
    500: anthropic.InternalServerError,
    502: anthropic.InternalServerError,
}
TURNS: Any = [{"role": "user", "content": "Hi"}]


def _call_sdk(served: Served, client: str, model: str) -> None:
    if client == "anthropic":
        anthropic.Anthropic(base_url=served.url, api_key="k", max_retries=0).messages.create(
            model=model, max_tokens=100, messages=TURNS
        )
    elif client == "gemini":
        google = genai.Client(api_key="k", http_options={"base_url": served.url})
        google.models.generate_content(model=model, contents="Hi")
    else:
        sdk = openai.OpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0)
        if client == "openai-chat":
            sdk.chat.completions.create(model=model, messages=TURNS)
        else:
            sdk.responses.create(model=model, input="Hi")


@pytest.mark.parametrize("status", OPENAI_ERRORS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", PROVIDERS)
def test_the_exceptions_of_the_sdks(served: Served, client: str, provider: str, status: int) -> None:
    model = f"refused-{provider}/m" if status == 502 else served.scene(provider, SHAPES["own"](provider, status)).model
    classes: dict[int, Any] = {"anthropic": ANTHROPIC_ERRORS, "gemini": {}}.get(client, OPENAI_ERRORS)
    google = genai_errors.ClientError if status < 500 else genai_errors.ServerError
    with pytest.raises(classes.get(status, google)) as caught:
        _call_sdk(served, client, model)
    got = caught.value
    headers = got.response.headers
    assert headers[HEADER] == model.partition("/")[0]
    text = str(got)
    assert "It said so." in text or "refused the connection" in text
    assert client == provider or f"the provider `{model.partition('/')[0]}`" in text


# --- the header on every answer ---------------------------------------------------------------------------------------


@STREAMS
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_an_answer_has_the_name_of_its_provider(served: Served, client: str, provider: str, stream: bool) -> None:
    scene = served.scene(provider, play_script(provider, stream))
    got = call(served, client, scene.model, stream)
    assert (got.status, got.headers[HEADER]) == (200, scene.model.partition("/")[0])


@STREAMS
@pytest.mark.parametrize("client", CLIENTS)
def test_the_embedded_model_has_a_name_too(served: Served, client: str, stream: bool) -> None:
    assert call(served, client, "loopback", stream).headers[HEADER] == "loopback"


def _post(served: Served, path: str, body: Any) -> RawAnswer:
    return ask(served.port, "POST", path, encode_json(body).encode())


def test_forwarded_paths_and_token_counts_have_it(served: Served) -> None:
    for status in (200, 404):
        scene = served.scene("openai-chat", answer(status, b'{"object":"list"}'))
        got = _post(served, "/v1/embeddings", {"model": scene.model, "input": "Hi"})
        assert (got.status, got.headers[HEADER], got.data) == (status, "chat", b'{"object":"list"}')
    got = _post(served, "/v1/embeddings", {"model": "refused-openai-chat/m", "input": "Hi"})
    assert (got.status, got.headers[HEADER]) == (502, "refused-openai-chat")
    scene = served.scene("anthropic", answer(200, b'{"input_tokens":3}'))
    counted = _post(served, "/v1/messages/count_tokens", {"model": scene.model, "messages": TURNS})
    assert (counted.json(), counted.headers[HEADER]) == ({"input_tokens": 3}, "anthropic")


def test_answers_without_a_provider_do_not_have_it(served: Served) -> None:
    for got in (
        ask(served.port, "GET", "/health"),
        call(served, "openai-chat", "nobody-serves-this", False),
        _post(served, "/v1/chat/completions", {"model": 5}),
        _post(served, "/v1/messages/count_tokens", {"model": "refused-anthropic/m", "messages": TURNS}),
    ):
        assert HEADER not in got.headers


def test_a_name_that_a_header_cannot_have_is_percent_encoded(served: Served) -> None:
    scene = served.scene("openai-chat", whole_answer("openai-chat"), provider="münchen")
    assert call(served, "openai-chat", scene.model, False).headers[HEADER] == "m%C3%BCnchen"


def test_another_gateway_does_not_name_its_own_provider(served: Served) -> None:
    body = {"id": "a", "message": {"role": "assistant", "content": "hi"}, "stop_reason": "end"}
    inner = answer(200, encode_json(body).encode(), x_toolwire_provider="inner", x_toolwire_losses="1; codes=x")
    scene = served.scene("openai-chat", inner, provider="gateway")
    got = call(served, "unified", scene.model, False)
    assert (got.status, got.headers[HEADER]) == (200, "gateway")
    assert got.headers["x-toolwire-losses"] == "1; codes=x"


def test_a_refusal_of_the_gateway_is_not_an_outcome_of_the_provider(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with stage(tmp_path_factory.mktemp("refusing"), more='[translate]\non_loss = "refuse"\n') as refusing:
        scene = refusing.scene("openai-chat")
        body = {"model": scene.model, "max_tokens": 9, "top_k": 3, "messages": [{"role": "user", "content": "Hello"}]}
        got = ask(refusing.port, "POST", "/v1/messages", encode_json(body).encode())
        assert got.status == 400
        line = refusing.line(got.headers["request-id"])
    assert [attempt[:2] for attempt in line["attempts"]] == [[scene.model.partition("/")[0], "refused_here"]]
    assert "provider" not in line
    assert scene.asked == []
