"""The console finds words in what was asked and answered, wherever they are, and nothing that is hidden."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.provider import ScriptedAnswer
from gateway.raw_exchange import PROVIDER_KEY, RawAnswer, Served, ask, call, play_script, stage
from gateway.test_console import API, TOOL, find_id
from gateway.test_web_tools import play_answer
from toolwire.gateway.surfaces.console import api, search


@pytest.fixture(name="served", scope="module")
def stage_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with stage(tmp_path_factory.mktemp("search")) as staged:
        yield staged


def find_hits(served: Served, query: str) -> dict[str, str]:
    got = ask(served.port, "GET", f"{API}search?q={quote(query)}")
    assert got.status == 200
    result = msgspec.json.decode(got.data, type=api.SearchResult)
    assert result.is_complete
    return {hit.id: hit.excerpt for hit in result.hits}


def id_of(served: Served, got: RawAnswer) -> str:
    assert got.status == 200
    served.line(got.id)  # it is finished
    return find_id(served, got.id)


HISTORY: list[Any] = [
    {"role": "user", "content": 'Where is the Übergrößen-Straße, "quoted" \\ and 日本語 and 🦊?\n<Next> line'},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "look.up", "input": {"q": "Argentum"}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Resultwort"}]},
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", ["anthropic", "openai-chat"])
def test_words_are_found_wherever_they_are(served: Served, provider: str, stream: bool) -> None:
    mark = f"mark{provider.replace('-', '')}{stream}"
    says = ScriptedAnswer(f"The answer is {mark} Zitronenfalter.", (("plain", {"q": f"{mark}Aurum"}),))
    scene = served.scene(provider, play_answer(provider, says, stream))
    got = call(served, "anthropic", scene.model, stream, messages=HISTORY, tools=[TOOL], system=f"{mark}Sys Regel")
    id = id_of(served, got)
    for words in (
        f"{mark}sys", mark.upper(), f"{mark}aurum", f"{mark} zitronenFALTER", f"{mark} argentum", f"{mark} resultwort",
        f"{mark} übergrößen-straße", f"{mark} ÜBERGRÖ", f"{mark} 日本語", f"{mark} 🦊", f'{mark} "quoted"',
        f"{mark} \\", f"{mark} <next>",
    ):  # fmt: skip
        assert set(find_hits(served, words)) == {id}, words
    assert find_hits(served, f"{mark} absentword") == {}
    assert "Zitronenfalter" in find_hits(served, f"zitronenfalter {mark}")[id]


def test_other_encodings_of_json_are_searched(served: Served) -> None:
    scene = served.scene("openai-chat", play_script("openai-chat", False))
    text = "Grüße & <b>fette</b> 🦊unicorn"
    body = json.dumps({"model": scene.model, "messages": [{"role": "user", "content": text}]}, ensure_ascii=True)
    body = body.replace("<", "\\u003c").replace("&", "\\u0026")
    id = id_of(served, ask(served.port, "POST", "/v1/chat/completions", body.encode()))
    for words in ("grüße unicorn", "GRÜßE unicorn", "<b>fette unicorn", "🦊unicorn", "& unicorn"):
        assert id in find_hits(served, words), words
    assert "Grüße & <b>fette</b>" in find_hits(served, "<b>fette unicorn")[id]


def test_names_of_the_protocol_and_pictures_are_not_found(served: Served) -> None:
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 40).decode()
    source = {"type": "base64", "media_type": "image/png", "data": picture}
    asked = [{"role": "user", "content": [{"type": "image", "source": source}, {"type": "text", "text": "onlyhere"}]}]
    scene = served.scene("anthropic", play_script("anthropic", False))
    id = id_of(served, call(served, "anthropic", scene.model, False, messages=asked))
    assert id in find_hits(served, "onlyhere")
    for words in ("media_type", "messages", "max_tokens", "user", picture[1000:1008]):
        assert id not in find_hits(served, words), words


def test_what_is_hidden_is_not_found(served: Served) -> None:
    secret = "sk-proj-abcdefghijklmnop1234"
    text = f"my key {secret} and {PROVIDER_KEY} findmehere end"
    scene = served.scene("anthropic", play_script("anthropic", False))
    id = id_of(served, call(served, "anthropic", scene.model, False, messages=[{"role": "user", "content": text}]))
    for words in (secret, secret[:20], "abcdefghijklmnop", PROVIDER_KEY, PROVIDER_KEY[3:15]):
        assert id not in find_hits(served, words), words
    excerpt = find_hits(served, "findmehere")[id]
    assert "findmehere" in excerpt
    assert secret[8:] not in excerpt
    assert PROVIDER_KEY not in excerpt


@pytest.mark.parametrize("path", ["search", "search?q=", "search?q=%20", "search/x?q=a", "search?x=1"])
def test_a_search_for_nothing_is_an_error(served: Served, path: str) -> None:
    got = ask(served.port, "GET", API + path)
    assert got.status == 400
    assert "search?q=words" in got.json()["message"]


@given(st.text(max_size=30), st.text(alphabet=st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=6),
       st.integers(1, 40), st.booleans())  # fmt: skip
def test_a_word_is_found_at_every_place(before: str, word: str, repeat: int, is_ascii: bool) -> None:
    """Also where one slice ends and the next begins, and however JSON writes it."""
    word = word.lower()
    text = f"{before * repeat} {word} ."
    body = json.dumps({"content": text}, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    pattern = search.compile_word(word)
    old = search.SLICE, search.OVERLAP
    search.SLICE, search.OVERLAP = 64, 256
    try:
        assert search.find_word(body, pattern, str) is not None
    finally:
        search.SLICE, search.OVERLAP = old


def test_an_incomplete_search_says_so(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(3):
        scene = served.scene("anthropic", play_script("anthropic", False))
        asked = [{"role": "user", "content": "severaltimes"}]
        id_of(served, call(served, "anthropic", scene.model, False, messages=asked))
    monkeypatch.setattr(search, "MAX_HITS", 2)
    got = ask(served.port, "GET", f"{API}search?q=severaltimes").json()
    assert len(got["hits"]) == 2
    assert got["is_complete"] is False
