"""Retries and fallbacks: as long as nothing reached the client, another try or another provider may answer it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from gateway.raw_exchange import (
    CLIENTS,
    PROVIDER_KEY,
    PROVIDERS,
    STREAM_HEAD,
    Play,
    RawAnswer,
    Scene,
    ScriptedConnection,
    Served,
    answer,
    ask,
    busy_answer,
    call,
    error_frame,
    error_of,
    is_complete,
    is_failure,
    open_call,
    opening_frames,
    play_script,
    refusal,
    stage,
    text_of,
    whole_answer,
    write_chunked,
)
from waits import PATIENCE

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
PAIRS = [
    ("openai-chat", "anthropic"),
    ("anthropic", "openai-responses"),
    ("openai-responses", "gemini"),
    ("gemini", "openai-chat"),
]
"""A provider that fails, and the one behind it."""


def _rules() -> str:
    """A model for each pair, and one whose first provider is not there at all."""
    rules = ""
    for first, second in PAIRS:
        rules += f'[models."pair-{first}-*"]\nprovider = "{_name(first)}"\nfallbacks = ["behind-{second}"]\n'
        rules += f'[models."behind-{second}"]\nprovider = "{_name(second)}"\nmodel = "behind-s{900 + PROVIDERS.index(second)}x"\n'
    for client in CLIENTS:
        rules += f'[models."lost-{client}"]\nprovider = "closed"\nmodel = "m"\nfallbacks = ["behind-anthropic"]\n'
    rules += f'[providers.closed]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1"\napi_key = "{PROVIDER_KEY}"\n'
    rules += '[providers.unkeyed]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1"\napi_key_env = "NO_SUCH_VARIABLE"\n'
    rules += '[models.keyless]\nprovider = "unkeyed"\nmodel = "m"\nfallbacks = ["behind-anthropic"]\n'
    return rules


def _name(protocol: str) -> str:
    return protocol.removeprefix("openai-")


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("fallbacks"), more=_rules()) as staged:
        yield staged


def pair(served: Served, first: str, second: str, stream: bool, *plays: Play) -> tuple[Scene, Scene]:
    """A scene that fails, and the one behind it, which does not."""
    failing_scene = served.scene(first, *plays, model=f"pair-{first}")
    behind = served.scene(second, play_script(second, stream, "From behind."))
    served.wire.scenes[f"s{900 + PROVIDERS.index(second)}x".encode()] = behind
    return failing_scene, behind


REFUSALS: dict[str, tuple[int, str]] = {
    "408": (408, "timeout"),
    "429": (429, "rate_limit_error"),
    "500": (500, "api_error"),
    "502": (502, "api_error"),
    "503": (503, "overloaded_error"),
    "529": (529, "overloaded_error"),
}


@STREAMS
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("pair_", PAIRS, ids=lambda pair_: pair_[0])
@pytest.mark.parametrize("status", REFUSALS)
def test_the_next_provider_is_asked(
    served: Served, client: str, pair_: tuple[str, str], status: str, stream: bool
) -> None:
    first, second = pair_
    code, kind = REFUSALS[status]
    word = {
        "anthropic": kind,
        "gemini": "UNAVAILABLE" if code >= 500 else "RESOURCE_EXHAUSTED" if code == 429 else "DEADLINE_EXCEEDED",
    }.get(first, "server_error" if code != 429 else "requests")
    scene, behind = pair(served, first, second, stream, answer(code, refusal(first, code, word, "Not now.")))
    got = call(served, client, scene.name, stream)
    assert got.status == 200, got.data
    assert text_of(client, got, stream) == "From behind."
    assert (len(scene.asked), len(behind.asked)) == (1, 1)
    tried = got.headers["x-toolwire-attempts"].split(", ")
    assert tried == [f"{_name(first)}={status}", f"{_name(second)}=ok"]
    assert got.headers["x-toolwire-provider"] == _name(second)
    line = served.line(got.id)
    assert [row[0] for row in line["attempts"]] == [_name(first), _name(second)]
    assert (line["provider"], line["provider_protocol"]) == (_name(second), second)


@STREAMS
@pytest.mark.parametrize("client", CLIENTS)
def test_a_connection_that_is_refused_is_no_end(served: Served, client: str, stream: bool) -> None:
    behind = served.scene("anthropic", play_script("anthropic", stream, "From behind."))
    served.wire.scenes[f"s{900 + PROVIDERS.index('anthropic')}x".encode()] = behind
    got = call(served, client, f"lost-{client}", stream)
    assert text_of(client, got, stream) == "From behind."
    assert got.headers["x-toolwire-attempts"] == "closed=refused, anthropic=ok"


def test_a_provider_without_its_key_is_passed_over(served: Served) -> None:
    behind = served.scene("anthropic", whole_answer("anthropic", "From behind."))
    served.wire.scenes[f"s{900 + PROVIDERS.index('anthropic')}x".encode()] = behind
    got = call(served, "openai-chat", "keyless", False)
    assert text_of("openai-chat", got, False) == "From behind."


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("pair_", PAIRS, ids=lambda pair_: pair_[0])
@pytest.mark.parametrize("how", ["overload", "cut", "start then overload", "start then cut"])
def test_a_stream_that_fails_before_its_content_is_tried_elsewhere(
    served: Served, client: str, pair_: tuple[str, str], how: str
) -> None:
    first, second = pair_
    start = opening_frames(first)[:1] if how.startswith("start") and first != "gemini" else []
    play: Play = write_chunked(*start, error_frame(first)) if how.endswith("overload") else _cut(start)
    scene, behind = pair(served, first, second, True, play)
    got = call(served, client, scene.name, True)
    assert got.status == 200, got.data
    assert text_of(client, got, True) == "From behind."
    assert is_complete(client, got.frames)
    assert (len(scene.asked), len(behind.asked)) == (1, 1)


def _cut(start: list[bytes]) -> Play:
    return lambda peer: peer.send(write_chunked(*start, end=False))


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("pair_", PAIRS, ids=lambda pair_: pair_[0])
def test_after_content_nobody_else_is_asked(served: Served, client: str, pair_: tuple[str, str]) -> None:
    first, second = pair_

    def play(peer: ScriptedConnection) -> None:
        peer.send(write_chunked(*opening_frames(first), end=False))
        peer.wait_for_release()
        peer.chunk(error_frame(first), b"")

    scene, behind = pair(served, first, second, True, play)
    line = open_call(served, client, scene.name, True)
    line.start()
    data = line.read_until(b"Hel")
    scene.go.set()
    got = RawAnswer(200, {}, data + line.response.read())
    line.connection.close()
    assert is_failure(client, got.frames)
    assert not is_complete(client, got.frames)
    assert not behind.asked


@STREAMS
@pytest.mark.parametrize("pair_", PAIRS, ids=lambda pair_: pair_[0])
@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_is_the_clients_fault_is_not_tried_again(
    served: Served, pair_: tuple[str, str], status: int, stream: bool
) -> None:
    first, second = pair_
    word = {"anthropic": "invalid_request_error", "gemini": "INVALID_ARGUMENT"}.get(first, "invalid_request_error")
    scene, behind = pair(served, first, second, stream, answer(status, refusal(first, status, word, "Wrong.")))
    got = call(served, "anthropic", scene.name, stream)
    assert 400 <= got.status < 500
    assert (len(scene.asked), len(behind.asked)) == (1, 0)
    assert "x-toolwire-attempts" not in got.headers


@pytest.mark.parametrize("client", CLIENTS)
def test_when_all_fail_the_first_refusal_is_told(served: Served, client: str) -> None:
    scene, behind = pair(
        served,
        "openai-chat",
        "anthropic",
        False,
        answer(429, refusal("openai-chat", 429, "requests", "First.", "rate_limit_exceeded"), retry_after="3"),
    )
    behind.plays[:] = [busy_answer("anthropic")]
    got = call(served, client, scene.name, False)
    assert got.status == 429
    assert "First." in error_of(client, got)["message"]
    assert got.headers["retry-after"] == "3"
    assert got.headers["x-toolwire-attempts"] == "chat=429, anthropic=529"
    assert got.headers["x-toolwire-provider"] == "chat"


def test_a_providers_words_do_not_get_into_headers(served: Served) -> None:
    body = refusal("openai-chat", 502, "upstream_error", "No.", "x\r\nset-cookie: evil=1")
    scene, _ = pair(served, "openai-chat", "anthropic", False, answer(502, body))
    got = call(served, "openai-chat", scene.name, False)
    assert got.headers["x-toolwire-attempts"] == "chat=502, anthropic=ok"
    assert "set-cookie" not in got.headers
    assert b"evil" not in call_metrics(served)


# --- retries ---


@pytest.fixture(scope="module")
def stubborn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(
        tmp_path_factory.mktemp("stubborn"),
        "retries = 2\ncooldown_after = 1000000\n[server.timeouts]\nall_attempts = 30",
    ) as staged:
        yield staged


LIMITED = refusal("openai-chat", 429, "requests", "Slow down.", "rate_limit_exceeded")


@STREAMS
@pytest.mark.parametrize("client", CLIENTS)
def test_the_same_provider_is_asked_again(stubborn: Served, client: str, stream: bool) -> None:
    scene = stubborn.scene(
        "openai-chat",
        answer(429, LIMITED, retry_after="0"),
        answer(503, LIMITED, retry_after="0"),
        play_script("openai-chat", stream),
    )
    got = call(stubborn, client, scene.model, stream)
    assert text_of(client, got, stream) == "Hello there."
    assert len(scene.asked) == 3
    assert got.headers["x-toolwire-attempts"] == "chat=429, chat=503, chat=ok"
    assert len({asked.body for asked in scene.asked}) == 1


def test_retries_have_an_end(stubborn: Served) -> None:
    scene = stubborn.scene("openai-chat", answer(429, LIMITED, retry_after="0"))
    got = call(stubborn, "openai-chat", scene.model, False)
    assert got.status == 429
    assert len(scene.asked) == 3
    assert len(stubborn.line(got.id)["attempts"]) == 3


@pytest.mark.parametrize("client", CLIENTS)
def test_a_long_wait_is_left_to_the_client(stubborn: Served, client: str) -> None:
    scene = stubborn.scene("openai-chat", answer(429, LIMITED, retry_after="31"))
    got = call(stubborn, client, scene.model, False)
    assert (got.status, got.headers["retry-after"]) == (429, "31")
    assert len(scene.asked) == 1


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_wait_of_hours_is_shown_at_once(stubborn: Served, client: str, provider: str) -> None:
    """Also where the provider speaks the client's own protocol: opencode and Codex obey any `retry-after`."""
    scene = stubborn.scene(provider, answer(429, LIMITED, retry_after="3600"))
    got = call(stubborn, client, scene.model, False)
    assert got.status == (403 if client == "openai-chat" else 429)
    assert (got.headers["x-should-retry"], got.headers.get("retry-after")) == ("false", None)
    assert "usage_limit_reached" in got.data.decode() or client != "openai-responses"
    assert len(scene.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_what_will_not_change_is_not_asked_again(stubborn: Served, status: int) -> None:
    scene = stubborn.scene(
        "openai-chat", answer(status, refusal("openai-chat", status, "invalid_request_error", "No."))
    )
    got = call(stubborn, "openai-chat", scene.model, False)
    assert got.status == status
    assert len(scene.asked) == 1


@pytest.mark.parametrize("client", ["openai-chat", "anthropic"])
def test_a_connection_that_is_cut_before_an_answer_is_tried_again(stubborn: Served, client: str) -> None:
    scene = stubborn.scene("openai-chat", lambda peer: None, whole_answer("openai-chat"))
    got = call(stubborn, client, scene.model, False)
    assert got.status == 200
    assert len(scene.asked) == 2


# --- rest ---


def test_a_provider_that_keeps_failing_rests_and_comes_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(tmp_path_factory.mktemp("rest"), "retries = 0\ncooldown_after = 2\ncooldown = 0.2", _rules()) as served:
        scene, behind = pair(served, "openai-chat", "anthropic", False, busy_answer("openai-chat"))
        for _ in range(2):
            assert call(served, "openai-chat", scene.name, False).status == 200
        assert (len(scene.asked), len(behind.asked)) == (2, 2)
        resting = _event(served, "provider_cooldown_start")
        assert resting["provider"] == "chat"
        scene.plays[:] = [whole_answer("openai-chat")]
        seen = ""
        while seen != "Hello there.":  # until its rest is over
            got = call(served, "openai-chat", scene.name, False)
            seen = text_of("openai-chat", got, False)
        assert len(behind.asked) >= 2
        assert len(scene.asked) == 3
        assert _event(served, "provider_cooldown_end")["provider"] == "chat"


def test_a_provider_without_a_fallback_never_rests(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(tmp_path_factory.mktemp("alone"), "retries = 0\ncooldown_after = 1\ncooldown = 1000") as served:
        scene = served.scene(
            "openai-chat", busy_answer("openai-chat"), busy_answer("openai-chat"), whole_answer("openai-chat")
        )
        statuses = [call(served, "openai-chat", scene.model, False).status for _ in range(3)]
        assert statuses == [503, 503, 200]


def test_it_rests_while_a_fallback_exists(tmp_path_factory: pytest.TempPathFactory) -> None:
    with stage(
        tmp_path_factory.mktemp("resting"), "retries = 0\ncooldown_after = 2\ncooldown = 1000", _rules()
    ) as served:
        scene, behind = pair(served, "openai-chat", "anthropic", False, busy_answer("openai-chat"))
        for _ in range(5):
            assert call(served, "openai-chat", scene.name, False).status == 200
        assert (len(scene.asked), len(behind.asked)) == (2, 5)
        metrics = call_metrics(served)
        assert b"toolwire_provider_cooldown{" in metrics


def call_metrics(served: Served) -> bytes:
    return ask(served.port, "GET", "/metrics").data


def _event(served: Served, kind: str) -> dict[str, object]:
    while True:
        found: dict[str, object] = json.loads(served.lines.get(timeout=PATIENCE))
        if found["event"] == kind:
            return found


# --- silence ---

ALL_ATTEMPTS = 0.3
BEHIND = "s990x"
SILENT_RULES = f"""
[models."silent-*"]
provider = "chat"
fallbacks = ["behind"]

[models."twice-*"]
provider = "chat"
fallbacks = ["responses/silent-s991x", "behind"]

[models.mute]
provider = "mute"
model = "m"
fallbacks = ["behind"]

[models."keyed-*"]
provider = "keyed"
fallbacks = ["behind"]

[models.behind]
provider = "anthropic"
model = "behind-{BEHIND}"

[providers.keyed]
protocols = ["openai-chat"]
base_url = "{{plain}}"
[[providers.keyed.accounts]]
name = "one"
api_key = "sk-one-0123456789"
[[providers.keyed.accounts]]
name = "two"
api_key = "sk-two-0123456789"

[providers.mute]
protocols = ["openai-chat"]
api_key = "{PROVIDER_KEY}"
base_url = "https://127.0.0.1:"""


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Little time for all attempts, and none for any other limit. Nobody answers at `mute`, which accepts connections."""
    times = f"all_attempts = {ALL_ATTEMPTS}\nfirst_byte = 1000\nconnect = 1000\n"
    with socket.create_server(("127.0.0.1", 0)) as mute:
        more = f'{SILENT_RULES}{mute.getsockname()[1]}"\n'
        settings = f"retries = 2\ncooldown_after = 1000000\n[server.timeouts]\n{times}"
        with stage(tmp_path_factory.mktemp("silent"), settings, more) as staged:
            yield staged


def _say_nothing(peer: ScriptedConnection) -> None:
    peer.wait_for_close()


def _say_head(peer: ScriptedConnection) -> None:
    peer.send(STREAM_HEAD)
    peer.wait_for_close()


def _add_fallback_scene(served: Served, stream: bool) -> Scene:
    behind = served.scene("anthropic", play_script("anthropic", stream, "From behind."))
    served.wire.scenes[BEHIND.encode()] = behind
    return behind


def _say_head_of_whole_answer(peer: ScriptedConnection) -> None:
    peer.send(answer(200, b"{}").partition(b"{")[0])
    peer.wait_for_close()


def _say_head_of_error(peer: ScriptedConnection) -> None:
    peer.send(answer(503, b"{}").partition(b"{")[0])
    peer.wait_for_close()


@STREAMS
@pytest.mark.parametrize("play", [_say_nothing, _say_head, _say_head_of_whole_answer, _say_head_of_error])
def test_a_silent_provider_leads_to_the_fallback(silent: Served, play: Play, stream: bool) -> None:
    behind = _add_fallback_scene(silent, stream)
    scene = silent.scene("openai-chat", play, model="silent")
    got = call(silent, "openai-chat", scene.name, stream)
    assert text_of("openai-chat", got, stream) == "From behind."
    assert got.headers["x-toolwire-attempts"] == "chat=first-byte-timeout, anthropic=ok"
    assert scene.gone.wait(PATIENCE)  # the silent one was given up
    assert (len(scene.asked), len(behind.asked)) == (1, 1)


@STREAMS
def test_each_silent_provider_has_its_share(silent: Served, stream: bool) -> None:
    _add_fallback_scene(silent, stream)
    scene = silent.scene("openai-chat", _say_nothing, model="twice")
    silent.wire.scenes[b"s991x"] = silent.scene("openai-responses", _say_nothing)
    got = call(silent, "openai-chat", scene.name, stream)
    assert text_of("openai-chat", got, stream) == "From behind."
    tried = "chat=first-byte-timeout, responses=first-byte-timeout, anthropic=ok"
    assert got.headers["x-toolwire-attempts"] == tried


@STREAMS
def test_a_mute_handshake_is_not_tried_again_before_the_fallback(silent: Served, stream: bool) -> None:
    _add_fallback_scene(silent, stream)
    got = call(silent, "openai-chat", "mute", stream)
    assert text_of("openai-chat", got, stream) == "From behind."
    assert got.headers["x-toolwire-attempts"] == "mute=connect-timeout, anthropic=ok"


def test_other_accounts_of_a_silent_provider_are_passed_over(silent: Served) -> None:
    _add_fallback_scene(silent, True)
    scene = silent.scene("openai-chat", _say_nothing, model="keyed")
    got = call(silent, "openai-chat", scene.name, True)
    assert text_of("openai-chat", got, True) == "From behind."
    assert len(scene.asked) == 1


@STREAMS
def test_without_a_fallback_a_model_may_think(silent: Served, stream: bool) -> None:
    """Longer than all attempts may take: nobody else could be asked."""

    def play(peer: ScriptedConnection) -> None:
        threading.Event().wait(2 * ALL_ATTEMPTS)
        peer.send(play_script("openai-chat", stream))

    scene = silent.scene("openai-chat", play)
    got = call(silent, "openai-chat", scene.model, stream)
    assert text_of("openai-chat", got, stream) == "Hello there."
    assert len(scene.asked) == 1


def test_the_last_one_may_think(silent: Served) -> None:
    def play(peer: ScriptedConnection) -> None:
        threading.Event().wait(2 * ALL_ATTEMPTS)
        peer.send(play_script("anthropic", False, "From behind."))

    silent.wire.scenes[BEHIND.encode()] = silent.scene("anthropic", play)
    scene = silent.scene("openai-chat", busy_answer("openai-chat"), model="silent")
    got = call(silent, "openai-chat", scene.name, False)
    assert text_of("openai-chat", got, False) == "From behind."
