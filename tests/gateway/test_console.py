"""The console's API: recent exchanges, both sides of each, live events, downloads, and who may see them."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.process import run_gateway
from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import (
    CLIENTS,
    PROVIDER_KEY,
    PROVIDERS,
    STREAM_HEAD,
    RawAnswer,
    RawConnection,
    ScriptedConnection,
    Served,
    answer,
    ask,
    body_of,
    call,
    frames,
    open_call,
    play_script,
    refusal,
    stage,
)
from toolwire.gateway.surfaces.console import api, detail
from toolwire.gateway.surfaces.console.access import (
    FAILED_TRIES_SECONDS,
    MAX_FAILED_ADDRESSES,
    MAX_FAILED_TRIES,
    EndedSessions,
    FailedTries,
)
from toolwire.gateway.surfaces.console.api import Cooldown, ProviderRow, RateLimit
from toolwire.gateway.surfaces.console.providers import merge_rows
from toolwire_conformance.case import read_case
from toolwire_conformance.peers.peer import encode_json
from waits import PATIENCE

API = api.API_PATH
POST = {"content-type": "application/json", api.CONSOLE_HEADER: "1"}
TOOL = {
    "name": "look.up",
    "description": "Looks up.",
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
}


@pytest.fixture(scope="module", name="served")
def serve_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("console")) as staged:
        yield staged


def get(served: Served, path: str, headers: Mapping[str, str] | None = None) -> RawAnswer:
    return ask(served.port, "GET", API + path, b"", headers)


def post(served: Served, path: str, body: object, headers: Mapping[str, str] = POST) -> RawAnswer:
    return ask(served.port, "POST", API + path, encode_json(body).encode(), headers)


def find_id(served: Served, request_id: str) -> str:
    """The console's id of the exchange that the client knows by this request id."""
    rows = get(served, "exchanges").json()["exchanges"]
    return next(row["id"] for row in rows if row["request_id"] == request_id)


def detail_of(served: Served, got: RawAnswer) -> api.ExchangeDetail:
    served.line(got.id)  # it is finished
    found = get(served, f"exchanges/{find_id(served, got.id)}")
    assert found.status == 200
    return msgspec.json.decode(found.data, type=api.ExchangeDetail)


# --- both sides ---


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_both_sides_of_an_exchange_are_the_bytes_that_passed(
    served: Served, client: str, provider: str, stream: bool
) -> None:
    scene = served.scene(provider, play_script(provider, stream, "One two."))
    got = call(served, client, scene.model, stream)
    found = detail_of(served, got)
    assert found.row.state == "done"
    assert found.row.client_protocol == client
    assert found.row.provider_protocol == provider
    assert found.client.response.text == got.data.decode()
    assert len(found.upstream_calls) == 1
    assert found.upstream_calls[0].request.text.encode() == scene.asked[0].body
    assert found.output.text == "One two."
    assert bool(found.client.events) is stream
    assert found.steps[0].name == "prepare"
    assert all(event.ms >= 0 for event in (*found.client.events, *found.upstream_calls[0].events))


@pytest.mark.parametrize("protocol", ["openai-chat", "openai-responses", "anthropic"])
def test_a_stream_in_odd_pieces_is_shown_as_the_client_got_it(served: Served, protocol: str) -> None:
    """What the client gets is what the provider sends, but not at the same time: a piece waits for its end."""
    sent = frames(protocol, "One two.")
    number = next(number for number, frame in enumerate(sent, 1) if b"One" in frame)
    first, rest = b"".join(sent[:number]), b"".join(sent[number:])

    def play(connection: ScriptedConnection) -> None:
        connection.send(STREAM_HEAD)
        connection.chunk(first)
        connection.wait_for_release()
        connection.chunk(rest[:10], rest[10:25], rest[25:])
        connection.send(b"0\r\n\r\n")

    scene = served.scene(protocol, play)
    line = open_call(served, protocol, scene.model, True)
    response = line.start()
    data = line.read_until(b"One")
    scene.go.set()
    data += response.read()
    got = RawAnswer(response.status, {name.lower(): value for name, value in response.getheaders()}, data, True)
    line.disconnect()
    found = detail_of(served, got)
    assert found.client.response.text == data.decode() == (first + rest).decode()
    assert found.upstream_calls[0].response.text == found.client.response.text


def test_tools_are_kept_renamed_dropped_and_added_with_reasons(served: Served) -> None:
    says = ScriptedAnswer("", (("look_up", {"q": "x"}),))
    body = body_of("openai-chat", says)

    def play(connection: ScriptedConnection) -> None:
        names = [tool["function"]["name"] for tool in connection.scene.asked[-1].json()["tools"]]
        body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] = names[0]
        connection.send(answer(200, encode_json(body).encode()))

    scene = served.scene("openai-chat", play)
    tools = [TOOL, {**TOOL, "name": "plain"}, {"type": "web_search_20250305", "name": "web_search"}]
    found = detail_of(served, call(served, "anthropic", scene.model, False, tools=tools))
    states = {row.client_name: row.state for row in found.tools}
    assert states == {"look.up": "renamed", "plain": "kept", "web_search": "dropped"}
    renamed, _, dropped = found.tools
    assert renamed.provider_name != "look.up"
    assert json.loads(renamed.client_declaration) == TOOL
    assert json.loads(renamed.provider_declaration)["function"]["name"] == renamed.provider_name
    assert renamed.reasons
    assert dropped.reasons
    [pair] = found.calls
    assert pair.is_in_answer
    assert pair.client is not None
    assert pair.provider is not None
    assert (pair.client.name, pair.provider.name) == ("look.up", renamed.provider_name)
    assert json.loads(pair.client.arguments) == json.loads(pair.provider.arguments) == {"q": "x"}
    losses = {loss.code: loss for loss in found.losses}
    assert losses["name-rewritten"].path == "/tools/0"
    assert losses["tool-dropped"].severity == "lost"


def test_calls_of_the_history_are_paired_with_their_results(served: Served) -> None:
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "toolu_1", "name": "plain", "input": {"q": 1}},
            {"type": "tool_use", "id": "toolu_2", "name": "plain", "input": {"q": 2}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "two", "is_error": True},
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "one"},
        ]},
    ]  # fmt: skip
    scene = served.scene("gemini", play_script("gemini", False))
    tools = [{**TOOL, "name": "plain"}]
    found = detail_of(served, call(served, "anthropic", scene.model, False, messages=history, tools=tools))
    sides = [(pair.client, pair.provider) for pair in found.calls if not pair.is_in_answer]
    assert [(client and client.id, client and client.result) for client, _ in sides] == [
        ("toolu_1", "one"), ("toolu_2", "two"),
    ]  # fmt: skip
    assert [client.is_error for client, _ in sides if client] == [False, True]
    assert all(provider is not None and provider.has_result for _, provider in sides)


def test_a_failure_shows_what_the_provider_said(served: Served) -> None:
    said = refusal("openai-chat", 429, "rate_limit_error", "Slow down, please")
    scene = served.scene("openai-chat", answer(429, said))
    found = detail_of(served, call(served, "anthropic", scene.model, False))
    assert (found.row.state, found.row.status, found.row.failure) == ("failed", 429, "rate")
    assert "Slow down, please" in found.row.message
    assert found.upstream_calls[0].status == 429
    assert "Slow down" in found.upstream_calls[0].response.text


def test_a_provider_that_cannot_be_reached_is_an_upstream_call_without_an_answer(tmp_path: Path) -> None:
    nowhere = '[providers.gone]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1/v1"\napi_key = "k"\n'
    with stage(tmp_path, more=nowhere) as served:
        found = detail_of(served, call(served, "anthropic", "gone/x", False))
    assert found.upstream_calls[0].status == 0
    assert found.upstream_calls[0].error


def read_pages(served: Served, body: api.Body) -> list[str]:
    pages, path = [body.text], body.next
    while path:
        page = msgspec.json.decode(get(served, path).data, type=api.BodyPage)
        pages.append(page.text)
        path = page.next
    return pages


def test_large_bodies_are_sent_by_page_and_secrets_at_their_borders_are_hidden(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detail, "PAGE", 1000)
    text = "".join(f"word {number} " * 10 + "my_password=hu5hhu5hhu5h " for number in range(100))
    scene = served.scene("anthropic", play_script("anthropic", False, text))
    got = call(served, "openai-chat", scene.model, False, messages=[{"role": "user", "content": text}])
    found = detail_of(served, got)
    side, sent = found.client, found.upstream_calls[0]
    for body in (side.request, side.response, sent.request, sent.response):
        pages = read_pages(served, body)
        assert len(pages) > 10
        assert {len(page) for page in pages[:-1]} == {1000}
        whole = "".join(pages)
        assert "hu5h" not in whole
        assert json.loads(whole)
        assert "word 99 " in whole
    pattern = re.compile(r"bodies/.*")
    for wrong in (
        "bodies",
        "bodies/request",
        "bodies/request/x",
        "bodies/request/-1",
        "bodies/request/1/2",
        "bodies/0-x/1",
    ):
        shown = get(served, pattern.sub(wrong, side.request.next))
        assert shown.status == 404 or shown.json()["text"] == "", wrong


def test_a_body_is_cleaned_once_for_all_its_pages_also_while_the_exchange_runs(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned: list[int] = []
    clean_body = detail.clean_body

    def note(data: bytes, clean: detail.CleanText) -> str:
        cleaned.append(len(data))
        return clean_body(data, clean)

    monkeypatch.setattr(detail, "PAGE", 1000)
    monkeypatch.setattr(detail, "clean_body", note)
    scene = served.scene("openai-chat", lambda connection: connection.wait_for_release())
    messages = [{"role": "user", "content": "word " * 2000}]
    asking = open_call(served, "anthropic", scene.model, True, messages=messages)
    try:
        assert scene.reached.wait(PATIENCE)
        row = msgspec.json.decode(get(served, "exchanges").data, type=api.ExchangeList).exchanges[0]
        assert row.state == "running"
        found = msgspec.json.decode(get(served, f"exchanges/{row.id}").data, type=api.ExchangeDetail)
        cleaned.clear()
        assert len(read_pages(served, found.client.request)) > 10
        assert len(cleaned) == 1
    finally:
        scene.go.set()
        asking.disconnect()


def test_an_unknown_or_removed_exchange_is_not_found(served: Served) -> None:
    for id in ("0-999999", "7-1", "x", "0-1-2", "1e3-4", "../state", ""):
        if id:
            assert get(served, f"exchanges/{id}").status == 404
    assert get(served, "exchanges/0-1/nothing").status == 404
    assert get(served, "nothing").json()["message"]


# --- sessions ---


def test_a_session_knows_where_its_prefix_broke(served: Served) -> None:
    scene = served.scene("openai-chat", play_script("openai-chat", False))
    headers = {"x-claude-code-session-id": scene.mark}
    turns = [
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two"},
        {"role": "user", "content": "Three"},
    ]
    asked = [("at 10:15", turns[:1]), ("at 10:15", turns), ("at 10:16", [*turns, *turns[1:]])]
    for system, messages in asked:
        got = call(served, "anthropic", scene.model, False, headers, system=system, messages=messages)
        served.line(got.id)
    row = get(served, "sessions").json()["sessions"][0]
    assert (row["title"], row["turns"], row["source"], row["broken_prefixes"]) == ("One", 3, "header", 1)
    found = get(served, f"sessions/{row['id']}").json()
    assert found["session"] == row
    assert [turn["prefix_break"] and turn["prefix_break"]["place"] for turn in found["turns"]] == [
        None,
        None,
        "/messages/0",
    ]
    broken = found["turns"][2]["prefix_break"]
    assert (broken["before"][broken["difference"]], broken["after"][broken["difference"]]) == ("5", "6")
    assert "time" in broken["cause"]


def test_independent_requests_with_the_same_question_are_not_one_session(served: Served) -> None:
    """A turn extends the one before. Such requests often differ in their instructions, which breaks nothing."""
    scene = served.scene("openai-chat", play_script("openai-chat", False))
    first = {"role": "user", "content": f"Is this spam? {scene.mark}"}
    more = [{"role": "assistant", "content": "No."}, {"role": "user", "content": "Why?"}]
    asked = [("1", [first]), ("2", [first]), ("3", [first]), ("2", [first, *more]), ("2", [first, *more, *more])]
    for system, messages in asked:
        served.line(call(served, "anthropic", scene.model, False, system=system, messages=messages).id)
    rows = [row for row in get(served, "sessions").json()["sessions"] if scene.mark in row["title"]]
    assert sorted((row["turns"], row["broken_prefixes"]) for row in rows) == [(1, 0), (1, 0), (3, 0)]
    assert len({row["id"] for row in rows}) == 3
    for row in rows:
        assert get(served, f"sessions/{row['id']}").json()["session"] == row


# --- limits ---


def test_the_oldest_exchanges_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolwire.gateway.telemetry.telemetry.MAX_EXCHANGES", 3)
    with stage(tmp_path) as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False))
        ids = [call(served, "anthropic", scene.model, False).id for _ in range(5)]
        served.line(ids[-1])
        listed = get(served, "exchanges").json()
        assert [row["request_id"] for row in listed["exchanges"]] == ids[:1:-1]
        assert listed["removed"] == 2
        assert get(served, "exchanges/0-1").status == 404


def test_bodies_are_limited_in_bytes(tmp_path: Path) -> None:
    with stage(tmp_path, more="[console]\nmax_bytes = 100000\n") as served:
        scene = served.scene("openai-chat", play_script("openai-chat", False))
        long = [{"role": "user", "content": "x" * 30_000}]
        ids = [call(served, "anthropic", scene.model, False, messages=long).id for _ in range(4)]
        served.line(ids[-1])
        listed = get(served, "exchanges").json()
        assert len(listed["exchanges"]) < 4  # each is there on both sides
        assert listed["exchanges"][0]["request_id"] == ids[-1]
        huge = [{"role": "user", "content": "x" * 300_000}]
        last = call(served, "anthropic", scene.model, False, messages=huge)
        assert last.status == 200
        served.line(last.id)
        rows = get(served, "exchanges").json()["exchanges"]
        kept = [get(served, f"exchanges/{row['id']}").data for row in rows]
        assert sum(map(len, kept)) < 300_000


# --- live ---


def events_until(line: RawConnection, mark: str) -> list[tuple[str, Any]]:
    text = line.read_until(mark.encode()).decode()
    found = re.findall(r"event: (\w+)\ndata: (.*)\n", text)
    return [(name, json.loads(data)) for name, data in found]


def test_a_running_stream_grows_in_the_live_events(served: Served) -> None:
    pieces = frames("openai-chat", "Hello there, you two.")

    def play(connection: ScriptedConnection) -> None:
        connection.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        connection.chunk(*pieces[:-2])
        connection.wait_for_release()
        connection.chunk(*pieces[-2:])
        connection.send(b"0\r\n\r\n")

    watching = RawConnection(served.port)
    watching.send("GET", API + "events")
    watching.start()
    assert events_until(watching, "hello")
    scene = served.scene("openai-chat", play)
    asking = open_call(served, "anthropic", scene.model, True)
    running = watching.read_until(b"there,").decode()
    assert '"state":"running"' in running
    scene.go.set()
    ended = watching.read_until(b'"state":"done"').decode()
    assert "two." in running + ended
    asking.start()
    asking.disconnect()
    watching.disconnect()


def test_an_open_page_does_not_hold_up_the_end(tmp_path: Path) -> None:
    with run_gateway(tmp_path) as process:
        watching = RawConnection(process.port)
        watching.send("GET", API + "events")
        watching.start()
        assert events_until(watching, "hello")
        process.signal(signal.SIGTERM)
        assert process.wait_for_exit() == 0
        watching.disconnect()


# --- who may see it ---

KEY = "console-key-0123456789"
CLIENT = "tw-client-key-0123456789"


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def keys(console: bool) -> tuple[str, str]:
    """The settings of a server with a client key, and with a key of the console."""
    more = f'[[server.keys]]\nname = "ci"\nsha256 = "{hash_key(CLIENT)}"\n'
    return "", more + (f'[console]\nsha256 = "{hash_key(KEY)}"\n' if console else "")


def test_with_client_keys_the_console_is_off(tmp_path: Path) -> None:
    with stage(tmp_path, *keys(console=False)) as served:
        for path in ("/", "/console/index.js", API + "state", API + "exchanges"):
            for headers in ({}, {"authorization": f"Bearer {CLIENT}"}):
                assert ask(served.port, "GET", path, b"", headers).status in (401, 404)


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_without_its_key_a_browser_is_told_how_to_make_it(tmp_path: Path) -> None:
    with stage(tmp_path, *keys(console=False)) as served:
        page = ask(served.port, "GET", "/", b"", BROWSER)
        assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"toolwire keys new NAME --console --write" in page.data
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert ask(served.port, "HEAD", "/", b"", BROWSER).status == 200
        for method, path, headers in (
            ("GET", "/", {"accept": "application/json"}),
            ("GET", "/", {}),
            ("POST", "/", BROWSER),
            ("GET", "/console/index.js", BROWSER),
            ("GET", API + "state", BROWSER),
        ):
            got = ask(served.port, method, path, b"", headers)
            assert got.status >= 400
            assert b"<html" not in got.data


def test_a_console_that_is_not_wanted_has_no_page(tmp_path: Path) -> None:
    server, more = keys(console=False)
    with stage(tmp_path, server, more + "[console]\nenabled = false\n") as served:
        got = ask(served.port, "GET", "/", b"", BROWSER)
        assert got.status >= 400
        assert b"<html" not in got.data


def test_the_consoles_own_key_opens_it_and_client_keys_do_not(tmp_path: Path) -> None:
    with stage(tmp_path, *keys(console=True)) as served:
        assert ask(served.port, "GET", "/").status == 200  # the page has nothing to hide
        for headers in (
            {},
            {"authorization": f"Bearer {CLIENT}"},
            {"x-api-key": CLIENT},
            {"authorization": f"Bearer {KEY}"},
        ):
            assert get(served, "exchanges", headers).status == 401
        assert post(served, "login", {"key": CLIENT}).status == 401
        let_in = post(served, "login", {"key": KEY})
        cookie = let_in.headers["set-cookie"]
        assert let_in.status == 204
        assert {"HttpOnly", "SameSite=Strict"} <= {part.strip() for part in cookie.split(";")}
        session = {"cookie": cookie.partition(";")[0]}
        assert get(served, "exchanges", session).status == 200
        name, _, value = session["cookie"].partition("=")
        expires, id, signature = value.split(".")
        for forged in (
            f"{int(expires) + 1}.{id}.{signature}",
            f"{expires}.{id[::-1]}.{signature}",
            f"{expires}.{signature}",
            f"{expires}.{id}.{'0' * 64}",
            f"{expires}.{id}.",
            "",
            f".{signature}",
            "é",
        ):
            assert get(served, "exchanges", {"cookie": f"{name}={forged}"}).status == 401


def log_in(port: int) -> dict[str, str]:
    """The header of a new session."""
    got = ask(port, "POST", API + "login", encode_json({"key": KEY}).encode(), POST)
    return {"cookie": got.headers["set-cookie"].partition(";")[0]}


def test_logging_out_ends_the_session_for_every_copy_of_its_cookie(tmp_path: Path) -> None:
    with stage(tmp_path, *keys(console=True)) as served:
        session, other = log_in(served.port), log_in(served.port)
        watching = RawConnection(served.port)
        watching.send("GET", API + "events", headers=session)
        watching.start()
        watching.read_until(b"event: hello")
        out = post(served, "logout", {}, {**POST, **session})
        assert (out.status, "Max-Age=0" in out.headers["set-cookie"]) == (204, True)
        assert get(served, "exchanges", session).status == 401
        assert get(served, "exchanges", other).status == 200  # of somebody else
        scene = served.scene("openai-chat", play_script("openai-chat", False, "Not for those who left."))
        call(served, "openai-chat", scene.model, False, {"authorization": f"Bearer {CLIENT}"})
        assert b"event: exchange" not in watching.response.read()  # the stream ends, and has nothing more
        watching.disconnect()


def test_ended_sessions_are_known_to_all_workers_and_forgotten_when_they_expire(tmp_path: Path) -> None:
    one, another = EndedSessions(tmp_path), EndedSessions(tmp_path)
    one.add("100.a", 50.0)
    assert "100.a" in another
    assert "100.b" not in another
    another.add("200.b", 100.0)
    assert [path.name for path in tmp_path.iterdir()] == ["200.b.ended"]
    one.add("200.c", 150.0)
    assert "100.a" not in one
    assert "200.b" in EndedSessions(tmp_path)  # a worker that was started again


def test_wrong_keys_have_to_wait_and_the_right_one_has_not(tmp_path: Path) -> None:
    with stage(tmp_path, *keys(console=True)) as served:
        session = log_in(served.port)
        tries = [post(served, "login", {"key": f"wrong-{number}"}) for number in range(MAX_FAILED_TRIES + 1)]
        assert [got.status for got in tries] == [401] * MAX_FAILED_TRIES + [429]
        assert int(tries[-1].headers["retry-after"]) > 0
        assert get(served, "exchanges", session).status == 200
        assert post(served, "login", {"key": KEY}).status == 204
        assert post(served, "login", {"key": "wrong"}).status == 429


def test_wrong_keys_are_counted_for_each_address_within_bounds() -> None:
    tries = FailedTries()
    for _ in range(MAX_FAILED_TRIES):
        assert tries.add("10.0.0.1", 0.0) == 0
    assert tries.add("10.0.0.1", 1.0) == FAILED_TRIES_SECONDS
    assert tries.add("10.0.0.2", 1.0) == 0
    assert tries.add("10.0.0.1", FAILED_TRIES_SECONDS) == 0
    for number in range(MAX_FAILED_ADDRESSES * 2):
        tries.add(f"host-{number}", 2.0)
    assert len(tries._times) == MAX_FAILED_ADDRESSES


FOREIGN = [
    {"host": "evil.example"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"x-forwarded-for": "203.0.113.7"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_pages_of_other_sites_are_refused(served: Served, headers: dict[str, str]) -> None:
    assert get(served, "exchanges", headers).status == 403
    assert post(served, "translate", {"text": "{}"}, {**POST, **headers}).status == 403


@pytest.mark.parametrize("headers", [{"content-type": "application/json"}, {**POST, "content-type": "text/plain"}])
def test_a_post_needs_what_a_form_cannot_send(served: Served, headers: dict[str, str]) -> None:
    assert post(served, "translate", {"text": "{}"}, headers).status == 400


def test_the_page_loads_nothing_from_elsewhere(served: Served) -> None:
    page = ask(served.port, "GET", "/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(rb"<script(?![^>]*\bsrc=)|<style|\bon\w+=|style=", page.data)
    for source in re.findall(rb'(?:src|href)="([^"]+)"', page.data):
        assert source.startswith(b"/console/")
        found = ask(served.port, "GET", source.decode())
        assert found.status == 200
        assert ask(served.port, "GET", source.decode(), b"", {"if-none-match": found.headers["etag"]}).status == 304
    for path in ("/console/../app.py", "/console/%2e%2e/api.py", "/console/x.js", "/console/", "/console/api/v1"):
        assert ask(served.port, "GET", path).status in (400, 404)


# --- secrets ---

SECRETS = {
    "provider": PROVIDER_KEY,
    "form": "sk-proj-abcdefghijklmnop1234",
    "password": "hunter2-hunter2",
    "query": "AIzaSyQueryKey0123456789abcdefghijk",
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_planted_secrets_are_nowhere(served: Served, stream: bool) -> None:
    text = f"key {SECRETS['provider']} and {SECRETS['form']} and password={SECRETS['password']} end"
    scene = served.scene("openai-chat", play_script("openai-chat", stream, text))
    body = {
        "model": scene.model,
        "max_tokens": 100,
        "stream": stream,
        "messages": [{"role": "user", "content": text}],
        "metadata": {"api_key": SECRETS["password"], "user_id": SECRETS["form"]},
        "tools": [{**TOOL, "description": text}],
        "system": text,
    }
    headers = {
        "authorization": f"Bearer {SECRETS['form']}",
        "cookie": f"session={SECRETS['password']}",
        "x-claude-code-session-id": "a-session",
    }
    path = f"/v1/messages?key={SECRETS['query']}"
    got = ask(served.port, "POST", path, encode_json(body).encode(), headers)
    assert got.status == 200
    served.line(got.id)
    id = find_id(served, got.id)
    session = get(served, "sessions").json()["sessions"][0]["id"]
    shown = [
        get(served, path).data.decode()
        for path in (
            "state", "exchanges", f"exchanges/{id}", f"exchanges/{id}/conversation", f"exchanges/{id}/case", "sessions", f"sessions/{session}",
            "providers", "models",
        )
    ]  # fmt: skip
    shown.append(post(served, "providers/chat/check", {}).data.decode())
    for secret in SECRETS.values():
        for page in shown:
            assert secret not in page
            assert secret[:-4] not in page


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_key_of_a_client_is_nowhere(tmp_path: Path, stream: bool) -> None:
    with stage(tmp_path, *keys(console=True)) as served:
        session = log_in(served.port)
        watching = RawConnection(served.port)
        watching.send("GET", API + "events", headers=session)
        watching.start()
        seen = watching.read_until(b"event: hello")
        scene = served.scene("openai-chat", play_script("openai-chat", stream, f"your key {CLIENT} is nice"))
        body = {
            "model": scene.model,
            "max_tokens": 100,
            "stream": stream,
            "system": f"Never show {CLIENT}.",
            "messages": [{"role": "user", "content": f"my key is {CLIENT}"}],
            "tools": [{**TOOL, "description": CLIENT}],
        }
        headers = {"x-api-key": CLIENT, "user-agent": f"{CLIENT}/1", "x-claude-code-session-id": CLIENT}
        got = ask(served.port, "POST", "/v1/messages", encode_json(body).encode(), headers)
        assert got.status == 200
        seen += watching.read_until(b'"state":"done"')
        watching.disconnect()
        served.line(got.id)
        [row] = get(served, "exchanges", session).json()["exchanges"]
        found = [get(served, f"sessions/{row['session']}", session), get(served, "sessions", session)]
        found += [get(served, f"exchanges/{row['id']}{part}", session) for part in ("", "/conversation", "/case")]
        assert [one.status for one in found] == [200] * 5
        assert b"my key is [hidden]" in found[2].data
        assert CLIENT not in f"{row} {seen!r} {found}"


# --- what can be taken away ---


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_exchange_can_be_downloaded_as_a_case(served: Served, stream: bool) -> None:
    scene = served.scene("anthropic", play_script("anthropic", stream, "Fine."))
    got = call(served, "openai-chat", scene.model, stream)
    served.line(got.id)
    found = get(served, f"exchanges/{find_id(served, got.id)}/case")
    assert "attachment" in found.headers["content-disposition"]
    [case] = read_case(found.json())
    assert case.turns[0].client.protocol == "openai-chat"
    assert case.turns[0].provider.protocol == "anthropic"


def test_curl_has_no_key(served: Served) -> None:
    scene = served.scene("openai-chat", play_script("openai-chat", False))
    got = call(served, "anthropic", scene.model, False, headers={"x-api-key": "sk-my-own-key-1234567890"})
    curl = detail_of(served, got).curl
    assert curl.startswith("curl ")
    assert "$KEY" in curl
    assert "sk-my-own" not in curl


# --- translations ---


@pytest.mark.parametrize(
    ("text", "kind", "source"),
    [
        ('{"model":"m","max_tokens":9,"system":"s","messages":[{"role":"user","content":"Hi"}]}', "request", "anthropic"),
        ('{"contents":[{"role":"user","parts":[{"text":"Hi"}]}]}', "request", "gemini"),
        ('{"model":"m","input":"Hi","instructions":"Be brief."}', "request", "openai-responses"),
        ('{"id":"c","object":"chat.completion","model":"m","created":1,"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"Hi"}}]}', "response", "openai-chat"),
        ('{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}', "error", "anthropic"),
    ],
)  # fmt: skip
def test_pasted_text_is_recognised_and_translated_to_all(served: Served, text: str, kind: str, source: str) -> None:
    found = post(served, "translate", {"text": text}).json()
    assert (found["kind"], found["source"] if kind != "error" else source) == (kind, source)
    assert [result["protocol"] for result in found["results"]] == list(CLIENTS_AND_UNIFIED)
    assert not any(result["error"] for result in found["results"])


CLIENTS_AND_UNIFIED = ("openai-chat", "openai-responses", "anthropic", "gemini", "bedrock-converse", "unified")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 5000,
        '{"a":1}',
        "data: words\n\n",
        "\ud83d".encode("utf-8", "surrogatepass").decode("utf-8", "replace"),
    ],
)
def test_text_that_cannot_be_read_is_said(served: Served, text: str) -> None:
    found = post(served, "translate", {"text": text})
    assert found.status == 200
    assert found.json()["error"]


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ({"text": '{"model":"x","messages":[{"role":"bob"}]}'}, "/messages/0"),
        ({"text": '{"contents":[{"parts":[{"text":5}]}]}'}, "/contents/0/parts/0/text"),
        ({"text": '{"messages":5}', "kind": "request", "source": "unified"}, "/messages"),
    ],
)
def test_what_cannot_be_read_has_a_place(served: Served, question: dict[str, str], place: str) -> None:
    error = post(served, "translate", question).json()["error"]
    assert error.startswith(f"{place}"), error


def test_bad_bodies_of_the_page_are_refused(served: Served) -> None:
    for body in (b"", b"{", b"[]", b'{"text": 5}', b"[" * 100_000):
        assert ask(served.port, "POST", API + "translate", body, POST).status == 400
    assert ask(served.port, "POST", API + "translate", b'{"text":"' + b"x" * 3_000_000 + b'"}', POST).status == 413


# --- several workers ---


def test_all_workers_are_shown(tmp_path: Path) -> None:
    (tmp_path / "console.toml").write_text(f'[console]\nsha256 = "{hash_key(KEY)}"\n')
    with run_gateway(tmp_path, "--workers", "3", "--config", str(tmp_path / "console.toml")) as process:
        port = process.port
        session = log_in(port)
        body = encode_json({"model": "loopback", "messages": [{"role": "user", "content": "Hi"}]}).encode()
        asked = [RawConnection(port) for _ in range(6)]  # connections are spread over the workers
        ids: set[str] = set()
        for line in asked:
            line.send("POST", "/v1/chat/completions", body)
            ids.add(dict(line.start().getheaders())["x-request-id"])
        rows = ask(port, "GET", API + "exchanges", headers=session).json()["exchanges"]
        assert {row["request_id"] for row in rows} == ids
        assert len({row["id"].partition("-")[0] for row in rows}) > 1
        for row in rows:  # whichever worker is asked
            found = ask(port, "GET", f"{API}exchanges/{row['id']}", headers=session).json()
            assert found["row"]["request_id"] == row["request_id"]
            found = ask(port, "GET", API + "providers", headers=session).json()["providers"]
            loopback = next(one for one in found if one["name"] == "loopback")
            assert (loopback["last_outcome"], loopback["last_at"]) == ("ok", rows[0]["started_at"])
        ask(port, "POST", API + "logout", b"{}", {**POST, **session})
        for line in asked:
            line.response.read()
            line.send("GET", API + "exchanges", headers=session)
            assert line.start().status == 401
            line.disconnect()


def test_what_workers_know_of_a_provider_is_merged() -> None:
    def row(outcome: str, at: float | None, limits: tuple[str, ...] = (), **cooldowns: float) -> ProviderRow:
        return ProviderRow(
            name="p", kind="", protocols=(), address="", key="set", key_variable="", is_embedded=False, models=None,
            problem="", last_outcome=outcome, last_at=at,
            cooldowns=[Cooldown(model=model, seconds=seconds) for model, seconds in cooldowns.items()],
            rate_limits=[RateLimit(name=name, limit=1, remaining=1, resets_at=None) for name in limits],
        )  # fmt: skip

    rows = [row("", None), row("ok", 5.0, ("old",), a=3.0), row("429", 9.0, ("new",), a=1.0, b=2.0), row("500", 10.0)]
    for order in itertools.permutations(rows):
        merged = merge_rows(order)
        assert (merged.last_outcome, merged.last_at) == ("500", 10.0)
        assert [limit.name for limit in merged.rate_limits] == ["new"]
        assert {one.model: one.seconds for one in merged.cooldowns} == {"a": 3.0, "b": 2.0}
