"""What clients, models and providers send is shown as text, whatever it is; and what is secret is not shown at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from console.browser import Page, quote
from console.conftest import Open
from console.test_layout import settle
from console.test_views import TABS
from gateway.list_server import list_server, openai_list
from gateway.raw_exchange import (
    PROVIDER_KEY,
    STREAM_HEAD,
    ScriptedConnection,
    Served,
    answer,
    ask,
    refusal,
    stage,
)
from toolwire.gateway.surfaces.console.api import API_PATH
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import encode_json

INJECTIONS = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(2)</script>",
    "\"><svg onload=alert(3)>",
    "javascript:alert(4)",
    "</textarea><script>alert(5)</script>",
    "<iframe srcdoc='<script>parent.alert(6)</script>'></iframe>",
    "<a href='javascript:alert(7)' autofocus onfocus=alert(8)>x</a>",
    "<link rel=stylesheet href=http://evil.example/x.css><style>*{display:none}</style>",
    "<img src=http://evil.example/pixel.png>",
    "<meta http-equiv=refresh content='0;url=http://evil.example'>",
    "{{constructor.constructor('alert(9)')()}}${alert(10)}",
    "![x](http://evil.example/p.png) [y](javascript:alert(11))",
    "&lt;b&gt; &#60;script&#62; %3Cscript%3E",
    "__proto__ constructor toString hasOwnProperty",
    "\u202egnp.exe\u202c \u200bhidden \u0007 \u001b[31m",
    "' onmouseover='alert(12)' x='",
)  # fmt: skip
ALL = " ".join(INJECTIONS)
FORBIDDEN = (
    "img, iframe, object, embed, video, audio, base, main style, main link, main script, meta[http-equiv],"
    " [onerror], [onload], [onfocus], [onmouseover], [srcdoc], a[href^='javascript:'], a[href*='evil.example']"
)


def chat_answer(text: str, injection: str) -> dict[str, Any]:
    """An answer with an injection in everything that a provider says."""
    call = {
        "id": injection,
        "type": "function",
        "function": {"name": injection, "arguments": encode_json({injection: text})},
    }
    message = {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": message}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    return {
        "id": injection,
        "object": "chat.completion",
        "created": 1,
        "model": injection,
        "choices": [choice],
        "usage": usage,
    }


def hostile_request(model: str, injection: str, text: str, stream: bool) -> dict[str, Any]:
    """A request with an injection in everything that a client says."""
    tool = {
        "name": injection,
        "description": text,
        "input_schema": {"type": "object", "properties": {injection: {"description": text}}},
    }
    use = {"type": "tool_use", "id": injection, "name": injection, "input": {injection: text}}
    result = {"type": "tool_result", "tool_use_id": injection, "content": text}
    return {
        "model": model, "max_tokens": 99, "stream": stream, "system": text, "tools": [tool], injection: text,
        "metadata": {"user_id": injection},
        "messages": [
            {"role": "user", "content": f"{injection} {text}"},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [result]},
        ],
    }  # fmt: skip


def play_hostile(text: str, injection: str, stream: bool) -> Any:
    body = chat_answer(text, injection)

    def play(connection: ScriptedConnection) -> None:
        headers = {"x_ratelimit_limit_requests": "9", "x_request_id": "<b>x</b>"}
        if not stream:
            connection.send(answer(200, encode_json(body).encode(), **headers))
            return
        connection.send(STREAM_HEAD)
        for frame in PEERS["openai-chat"].write_stream(body):
            connection.chunk(f"event: {injection}\n{frame}".encode())
        connection.send(b"0\r\n\r\n")

    return play


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("hostile")) as served:
        play_injections(served)
        yield served


def play_injections(served: Served) -> None:
    """Each of them twice: once answered, once refused by the provider."""
    for number, injection in enumerate(INJECTIONS):
        stream = number % 2 == 0
        scene = served.scene("openai-chat", play_hostile(ALL, injection, stream))
        agent = injection.encode("ascii", "ignore").decode()
        printable = "".join(char for char in agent if char.isprintable())
        headers = {"user-agent": printable, "x-claude-code-session-id": printable, "x-request-id": printable}
        body = hostile_request(f"chat/{injection}-{scene.mark}", injection, ALL, stream)
        got = ask(served.port, "POST", "/v1/messages", encode_json(body).encode(), headers)
        served.line(got.id)
        failing = served.scene("openai-chat", answer(400, refusal("openai-chat", 400, injection, ALL, injection)))
        body = hostile_request(f"chat/{injection}-{failing.mark}", injection, ALL, stream=False)
        got = ask(served.port, "POST", "/v1/messages", encode_json(body).encode(), headers)
        served.line(got.id)


def check_document(page: Page) -> None:
    settle(page)
    assert page.evaluate(f"[...document.querySelectorAll({quote(FORBIDDEN)})].map(one => one.outerHTML)") == []


def test_injections_are_text_everywhere(hostile: Served, open_page: Open) -> None:
    page = open_page(hostile, width=1800)
    page.allowed = ("status of 4",)
    page.show("")
    page.find(".exchange-rows a >> nth=0").wait()
    check_document(page)
    page.find(".live").wait_for_text(INJECTIONS[0])
    rows = ask(hostile.port, "GET", API_PATH + "exchanges").json()["exchanges"]
    assert {row["state"] for row in rows} == {"done", "failed"}
    for row in [*rows[:2], *rows[-4:]]:
        for tab in TABS:
            page.show(f"#/exchange/{row['id']}/{tab}")
            page.find(f"#tab-{tab}[aria-selected=true]").wait()
            check_document(page)
    page.find("#panel").wait_for_text("<script>alert(2)</script>")
    for part in ("request", "upstream", "answer", "raw", "tools"):
        page.show(f"#/compare/{rows[-1]['id']}/{rows[-3]['id']}/{part}")
        check_document(page)
    page.show(f"#/again/{rows[-1]['id']}")
    check_document(page)
    page.show("#/sessions")
    page.find(".session-row >> nth=0").wait()
    check_document(page)
    for session in ask(hostile.port, "GET", API_PATH + "sessions").json()["sessions"]:
        page.show(f"#/session/{session['id']}")
        page.find(".turns").wait()
        check_document(page)
    page.show("#/providers")
    page.button("Check all").click()
    check_document(page)
    page.show("#/translate")
    page.find("textarea").fill(encode_json(hostile_request(INJECTIONS[0], INJECTIONS[1], ALL, False)))
    page.find("#tab-openai-chat").click()
    check_document(page)
    page.text("Differences from the input").click()
    check_document(page)


def test_hostile_names_of_a_providers_models_are_text(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    """A provider lists its models itself, and the page offers them."""
    server = gateways.enter_context(list_server({"/v1/models": openai_list(*INJECTIONS)}))
    lab = f'[providers.lab]\nprotocols = ["openai-chat"]\nbase_url = "{server.url}"\napi_key = "k"\n'
    served = gateways.enter_context(stage(tmp_path, more=lab))
    page = open_page(served)
    page.show("#/providers")
    page.button("Check all").click()
    page.find(".model-list >> nth=0").wait()
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    check_document(page)
    page.find("main").wait_for_text(*INJECTIONS[:6])
    for view in ("try", "connect", "translate"):
        page.show(f"#/{view}")
        page.find("main h1 >> nth=0").wait()
        check_document(page)
    page.show("#/try")
    page.find('role=combobox[name="Model"]').fill("<")
    check_document(page)
    page.wait_until(f"[...document.querySelectorAll('option')].some(one => one.value.includes({quote(INJECTIONS[0])}))")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_hostile_answer_in_try_is_text(hostile: Served, open_page: Open, stream: bool) -> None:
    scene = hostile.scene("openai-chat", play_hostile(ALL, INJECTIONS[0], stream))
    page = open_page(hostile)
    page.show("#/try")
    page.find('role=combobox[name="Model"]').fill(scene.model)
    if not stream:
        page.find("label:has-text('Stream the answer') input").click()
    page.find(".composer textarea").fill(ALL)
    page.button("Send").click()
    page.find(".call-card >> nth=0").wait()
    check_document(page)
    page.find(".call-card >> nth=0").wait_for_text(INJECTIONS[0])
    page.find("label:has-text('System prompt') textarea").fill(ALL)
    page.button("Suggest all").click()
    check_document(page)


@pytest.mark.parametrize("hash", [f"#/{ALL}", f"#/exchange/{ALL}", f"#/session/{ALL}", f"#/live?text={ALL}", f"#/translate?t={ALL}",
                                  f"#/compare/{ALL}/{ALL}", "#/exchange/0-1/../../x", "#/%E0%A4%A", "#/live?%"])  # fmt: skip
def test_injections_in_the_address(hostile: Served, open_page: Open, hash: str) -> None:
    page = open_page(hostile)
    page.allowed = ("status of 4",)
    page.call("goto", f"{hostile.url}/{hash}")
    page.find("main :is(h1, [role=alert]) >> nth=0").wait("attached")
    check_document(page)


SECRETS = (
    PROVIDER_KEY,
    "sk-proj-abcdefghijklmnop1234",
    "hunter2-hunter2",
    "AIzaSyQueryKey0123456789abcdefghijk",
    "tw-cookie-0123456789",
)


def test_secrets_are_nowhere_in_the_page(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    provider, key, password, query, cookie = SECRETS
    text = f"key {provider} and {key} and password={password} and https://x.example/?key={query} end"
    served = gateways.enter_context(stage(tmp_path))
    for stream in (False, True):
        scene = served.scene("openai-chat", play_hostile(text, "look_up", stream))
        body = {**hostile_request(scene.model, "look_up", text, stream), "api_key": password}
        headers = {
            "authorization": f"Bearer {key}",
            "cookie": f"session={cookie}",
            "x-api-key": key,
            "user-agent": "agent/1",
        }
        got = ask(served.port, "POST", f"/v1/messages?key={query}", encode_json(body).encode(), headers)
        served.line(got.id)
        failing = served.scene(
            "openai-chat", answer(401, refusal("openai-chat", 401, "auth", f"Incorrect key: {provider}"))
        )
        got = ask(served.port, "POST", "/v1/messages", encode_json({**body, "model": failing.model}).encode(), headers)
        served.line(got.id)
    page = open_page(served)
    seen: list[str] = []

    def keep() -> None:
        settle(page)
        seen.append(page.call("content"))

    page.show("")
    rows = ask(served.port, "GET", API_PATH + "exchanges").json()["exchanges"]
    keep()
    for row in rows:
        for tab in TABS:
            page.show(f"#/exchange/{row['id']}/{tab}")
            page.find(f"#tab-{tab}[aria-selected=true]").wait()
            keep()
        seen.append(page.download("text=Download case"))
    for hash in (
        f"#/compare/{rows[0]['id']}/{rows[2]['id']}/upstream",
        f"#/again/{rows[0]['id']}",
        "#/sessions",
        "#/providers",
        "#/connect",
    ):
        page.show(hash)
        keep()
    page.show(f"#/session/{ask(served.port, 'GET', API_PATH + 'sessions').json()['sessions'][0]['id']}")
    keep()
    answers = page.seen["answers"]
    assert len(answers) > 10
    for secret in SECRETS:
        for shown in (*seen, *answers):
            assert secret[:-4] not in shown
