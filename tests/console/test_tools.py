"""The views that do something: translate, try, providers, connect, and the login before all of them."""

from __future__ import annotations

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from console.browser import MODEL, Page, quote
from console.conftest import Gallery, Open
from gateway.raw_exchange import ScriptedConnection, answer, ask, call, play_script, stage
from toolwire.gateway.surfaces.console.access import MAX_FAILED_TRIES
from toolwire_conformance.peers.peer import encode_json

REQUEST = {
    "model": "m",
    "max_tokens": 9,
    "top_k": 40,
    "system": "Be brief.",
    "messages": [{"role": "user", "content": "Hi"}],
}
PROTOCOLS = ("openai-chat", "openai-responses", "anthropic", "gemini", "unified")


def test_a_pasted_request_is_translated_as_one_types(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("#/translate")
    page.find("textarea").fill(json.dumps(REQUEST))
    page.find("option:text-is('anthropic (guessed)')").wait("attached")
    for protocol in PROTOCOLS:
        page.find(f"#tab-{protocol}").click()
        page.find(f"#tab-{protocol}[aria-selected=true]").wait()
        page.find("#panel >> text=Be brief.").wait()
    page.find("#tab-openai-chat").click()
    page.find("#panel >> text=top_k >> nth=0").wait()
    page.text("Differences from the input").click()
    page.find("textarea").fill("{")
    page.find(".translate-input [role=alert]").wait()


def test_a_link_holds_what_it_shares(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("#/translate")
    page.find("textarea").fill(json.dumps(REQUEST))
    page.button("Copy link").click()
    page.text("Copied. The link holds the whole text.").wait()
    link = page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{gallery.served.url}/#/translate?")
    other = open_page(gallery.served)
    other.call("goto", link)
    other.find("#panel >> text=Be brief.").wait()
    assert json.loads(other.find("textarea").value) == REQUEST
    other.call("goto", "about:blank")
    other.call("goto", link[:-20])
    other.find("[role=alert] >> text=The link is damaged").wait()


def play_calls(connection: ScriptedConnection) -> None:
    """Two calls at once; with their results, what they say."""
    asked = connection.scene.asked[-1].json()
    results = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
    calls = [
        {"id": f"call_{city}", "type": "function", "function": {"name": "get_weather", "arguments": json.dumps({"location": city})}}
        for city in ("Paris", "Oslo")
    ]  # fmt: skip
    message = (
        {"role": "assistant", "content": " and ".join(results)}
        if results
        else {"role": "assistant", "content": None, "tool_calls": calls}
    )
    choice = {"index": 0, "finish_reason": "stop" if results else "tool_calls", "message": message}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    connection.send(answer(200, encode_json(body).encode()))


@pytest.mark.parametrize("protocol", ["anthropic", "openai-responses", "gemini"])
def test_calls_are_answered_by_hand(gallery: Gallery, open_page: Open, protocol: str) -> None:
    scene = gallery.served.scene("openai-chat", play_calls)
    page = open_page(gallery.served)
    page.show("#/try")
    page.find(".try-setup select").choose(protocol)
    page.find(MODEL).fill(scene.model)
    page.find("label:has-text('Stream the answer') input").click()
    page.find(".composer textarea").fill("How is the weather?")
    page.button("Send").click()
    page.find(".call-card textarea").wait_for_count(2)
    for at, city in enumerate(("Paris", "Oslo")):
        page.find(f".call-card >> nth={at}").wait_for_text(city)
    page.find(".call-card >> nth=0 >> textarea").fill("15 degrees")
    page.find(".call-card >> nth=1 >> textarea").fill("3 degrees")
    page.button("Send the results").click()
    page.find("article[aria-label=Answer] >> text=15 degrees and 3 degrees").wait()
    for language, word in (("Python", "import"), ("TypeScript", "await"), ("curl", "curl ")):
        page.find(f".try-code >> role=button[name={quote(language)}]").click()
        page.find(f".try-code pre:has-text({quote(word)})").wait()
    page.find(".try-code pre").wait_for_text(gallery.served.url)
    page.find("text=See this exchange >> nth=-1").click()
    page.find("#tab-calls").click()
    page.find(".call-side:has-text('15 degrees') >> nth=0").wait()


def test_a_failure_is_shown_and_can_be_tried_again(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.allowed = ("status of 429",)
    page.show("#/try")
    page.find(MODEL).fill("loopback")
    page.find(".composer textarea").fill("loopback: fail 429")
    page.button("Send").click()
    page.find(".failure .badge:has-text('429')").wait()
    page.button("Change the message").click()
    page.find(".composer textarea").fill("Hello!")
    page.button("Send").click()
    page.find("article[aria-label=Answer]").wait()


MODELS = {"object": "list", "data": [{"id": "large-s1x", "object": "model"}, {"id": "small-s1x", "object": "model"}]}


def test_providers_are_checked(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    nowhere = '[providers.gone]\nprotocols = ["openai-chat"]\nbase_url = "http://127.0.0.1:1/v1"\napi_key = "k"\n'
    headers = 'headers = {x-mark = "-s1x"}\n'
    listed = f'[providers.listed]\nprotocols = ["openai-chat"]\nbase_url = "{{plain}}/v1"\napi_key = "k"\n{headers}'
    missing = (
        '[providers.keyless]\nprotocols = ["anthropic"]\nbase_url = "{plain}"\napi_key_env = "NO_SUCH_VARIABLE_HERE"\n'
    )
    served = gateways.enter_context(stage(tmp_path, more=nowhere + listed + missing))
    served.scene("openai-chat", answer(200, encode_json(MODELS).encode()))
    page = open_page(served)
    page.show("#/providers")
    card = "li.card:has(h2:text-is('{}'))"
    page.find(card.format("keyless")).wait_for_text("key missing", "NO_SUCH_VARIABLE_HERE")
    page.button("Check listed").click()
    page.find(card.format("listed") + " >> text=large-s1x").wait()
    page.find(card.format("listed") + " >> text=reachable").wait()
    page.button("Check gone").click()
    page.find(card.format("gone") + " >> [role=alert]").wait()


def test_connect_has_the_real_address(gallery: Gallery, open_page: Open) -> None:
    page = open_page(gallery.served)
    page.show("#/connect")
    page.find(MODEL).fill("openai/gpt-5.5")
    for protocol in PROTOCOLS[:4]:
        page.find(f"#tab-{protocol}").click()
        for language in ("Python", "TypeScript", "Environment", "curl"):
            page.find(f"#panel >> role=button[name={quote(language)}]").click()
            page.find(f"#panel pre:has-text({quote(gallery.served.url)})").wait()
    agents = ("claude", "codex", "opencode", "gemini", "qwen")
    page.find(".agents").wait_for_text(*(f"toolwire run {agent} --model openai/gpt-5.5" for agent in agents))


# --- the login ---

CONSOLE_KEY, CLIENT_KEY = "console-key-0123456789", "tw-client-key-0123456789"


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


KEYS = f"""
[[server.keys]]
name = "ci"
team = "builders"
sha256 = "{hash_key(CLIENT_KEY)}"
[console]
sha256 = "{hash_key(CONSOLE_KEY)}"
"""


def log_in(page: Page, key: str) -> None:
    page.find("input[type=password]").fill(key)
    page.button("Log in").click()


def test_the_consoles_own_key_opens_it(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    served = gateways.enter_context(stage(tmp_path, more=KEYS))
    scene = served.scene("openai-chat", play_script("openai-chat", False, "Only for those with a key."))
    got = call(served, "anthropic", scene.model, False, {"x-api-key": CLIENT_KEY})
    served.line(got.id)
    page = open_page(served)
    page.allowed = ("status of 401", "ERR_ABORTED")
    page.show("#/exchange/0-1", "text=The console needs its key")
    assert page.axe() == []
    for wrong in ("not-the-key", CLIENT_KEY):
        log_in(page, wrong)
        page.text("This is not the key of the console.").wait()
    assert "Only for those" not in page.call("content")
    log_in(page, CONSOLE_KEY)
    page.find("#panel >> text=Only for those with a key.").wait()
    page.call("reload")
    page.find("#panel >> text=Only for those with a key.").wait()
    assert CONSOLE_KEY not in page.evaluate(
        "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage)"
    )
    page.show("")
    page.find(".list-head >> text=Key · team").wait("attached")
    page.find(".exchange-rows .key").wait_for_text("ci · builders")
    page.show("#/again/0-1")
    page.find(MODEL).fill(scene.model)
    page.find("input[type=password]").fill(CLIENT_KEY)
    page.button("Send").click()
    page.find("section[aria-label=Now] >> text=Only for those with a key.").wait()
    page.button("Log out").click()
    page.text("The console needs its key").wait()
    assert "Only for those" not in page.call("content")
    assert ask(served.port, "GET", "/console/api/v1/exchanges").status == 401


def test_too_many_wrong_keys_must_wait(tmp_path: Path, gateways: ExitStack, open_page: Open) -> None:
    served = gateways.enter_context(stage(tmp_path, more=KEYS))
    page = open_page(served)
    page.allowed = ("status of 401", "status of 429", "ERR_ABORTED")
    page.show("", "text=The console needs its key")
    for number in range(MAX_FAILED_TRIES):
        log_in(page, f"wrong-{number}")
        page.text("This is not the key of the console.").wait()
    log_in(page, "wrong-again")
    page.find("[role=alert] >> text=/[0-9]+ seconds/").wait()
    log_in(page, CONSOLE_KEY)
    page.button("Log out").wait()
