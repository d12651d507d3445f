"""A provider that repeats its own key, however it cuts it over the events of a stream, shows it to nobody."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.misbehaving_providers import Peer, client, provider, send_post
from step_count import count_steps
from toolwire.gateway.http.answer_keys import MAX_BODY, MAX_HELD, AnswerKeys
from toolwire.gateway.http.client import LARGE_HIDDEN
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.redact import KeyFilter

KEY = "sk-own/key-0123456789"
PLACE = "PLACE"


def event(value: object, name: str = "") -> str:
    return (f"event: {name}\n" if name else "") + f"data: {json.dumps(value, separators=(',', ':'))}\n\n"


def chat(delta: object) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return event({"id": "chatcmpl-s", "object": "chat.completion.chunk", "model": "claude-opus", "choices": [choice]})


def block(delta: object, index: int = 1) -> str:
    return event({"type": "content_block_delta", "index": index, "delta": delta}, "content_block_delta")


def item(kind: str, **more: object) -> str:
    return event({"type": kind, "item_id": "msg_s", "output_index": 0, **more, "delta": PLACE}, kind)


DELTAS = {
    "chat text": chat({"content": PLACE}),
    "chat reasoning": chat({"reasoning_content": PLACE}),
    "chat arguments": chat({"tool_calls": [{"index": 0, "function": {"arguments": PLACE}}]}),
    "anthropic text": block({"type": "text_delta", "text": PLACE}),
    "anthropic thinking": block({"type": "thinking_delta", "thinking": PLACE}),
    "anthropic arguments": block({"type": "input_json_delta", "partial_json": PLACE}),
    "responses text": item("response.output_text.delta", content_index=0, logprobs=[], obfuscation="ns"),
    "responses arguments": item("response.function_call_arguments.delta", sequence_number=5),
    "gemini text": event(
        {
            "candidates": [{"content": {"parts": [{"text": PLACE}], "role": "model"}, "index": 0}],
            "modelVersion": "models",
        }
    ),
    "with spaces": json.dumps({"index": 0, "note": "as", "text": PLACE}).join(("data: ", "\r\n\r\n")),
}
"""An event of each kind that brings a piece of a text."""
BETWEEN = {
    "nothing": lambda shape, number: "",
    "an empty delta": lambda shape, number: fill(shape, ""),
    "a ping": lambda shape, number: 'event: ping\ndata: {"type": "ping"}\n\n: a comment\n\n',
    "another choice": lambda shape, number: fill(re.sub(r'index":\s*\d', 'index":7', shape), f"word {number}s"),
}


def fill(shape: str, text: str) -> str:
    return shape.replace(json.dumps(PLACE), json.dumps(text)).replace(PLACE, text)


def spell(shape: str, key: str, size: int, between: Callable[[str, int], str], before: str = "is s") -> str:
    numbers, pieces = count(), [key[at : at + size] for at in range(0, len(key), size)]
    pieces = [f"{before}{pieces[0]}", *pieces[1:-1], f"{pieces[-1]} z"] if len(pieces) > 1 else [f"{before}{key} z"]
    return "".join(f"{fill(shape, piece)}{between(shape, next(numbers))}" for piece in pieces)


def hide(text: str, cut: int = 0, keys: tuple[str, ...] = (KEY,)) -> str:
    hidden = AnswerKeys(KeyFilter(keys))
    data = text.encode()
    pieces = [data[at : at + cut] for at in range(0, len(data), cut)] if cut else [data]
    return (b"".join(map(hidden.feed, pieces)) + hidden.close()).decode()


def read_text(shape: str, stream: str) -> str:
    """What a client makes of the events of this kind."""
    before = fill(shape, PLACE).partition(PLACE)[0][-14:]
    return "".join(json.loads(f'"{found}"') for found in re.findall(re.escape(before) + r'((?:[^"\\]|\\.)*)"', stream))


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 40])
@pytest.mark.parametrize("name", DELTAS)
def test_a_key_in_pieces_is_hidden(name: str, size: int, between: str) -> None:
    shape = DELTAS[name]
    stream = spell(shape, KEY, size, BETWEEN[between])
    shown = hide(stream)
    text = re.sub(r"word \d+s", "", read_text(shape, shown))
    assert text == "is s[key] z"
    assert shown.count("data:") == stream.count("data:")
    for line in shown.splitlines():
        if line.startswith("data:"):
            json.loads(line.removeprefix("data:"))


@pytest.mark.parametrize("name", DELTAS)
def test_a_key_in_escaped_pieces_is_hidden(name: str) -> None:
    shape = DELTAS[name]
    for letter, written in (("/", r"\/"), ("o", r"\u006f"), ("s", r"\u0073"), ("/", r"\u002F"), ("/", r"\\/")):
        for size in (1, 2, 3):
            pieces = [KEY[at : at + size].replace(letter, written) for at in range(0, len(KEY), size)]
            shown = hide("".join(shape.replace(PLACE, piece) for piece in (*pieces, " z")))
            assert read_text(shape, shown) == "[key] z"


@pytest.mark.parametrize("cut", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("name", DELTAS)
def test_it_does_not_matter_where_the_network_cuts(name: str, cut: int) -> None:
    for size in (1, 4):
        stream = spell(DELTAS[name], KEY, size, BETWEEN["an empty delta"]) + "data: [DONE]\n\n"
        assert hide(stream, cut) == hide(stream)


def test_the_first_letters_may_be_in_the_event_that_opens_a_block() -> None:
    start = event({"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "a s"}})
    shown = hide(start + spell(DELTAS["anthropic text"], KEY[1:], 1, BETWEEN["nothing"], before=""))
    assert '"a [key]"' in shown
    assert re.findall(r'"text":"(.*?)"', shown)[1:] == [""] * (len(KEY) - 2) + [" z"]


def test_probabilities_of_its_letters_do_not_show_a_key() -> None:
    shape = chat({"content": PLACE}).replace(
        '"finish_reason"',
        '"logprobs":{"content":[{"token":"PLACE","top_logprobs":[{"token":"PLACE"}]}]},"finish_reason"',
    )
    shown = hide(spell(shape, KEY, 1, BETWEEN["nothing"], before=""))
    assert re.findall(r'"(?:content|token)":"(.*?)"', shown) == ["[key]"] * 3 + [""] * 3 * (len(KEY) - 2) + [" z"] * 3


def test_several_keys_and_one_key_after_the_other() -> None:
    other = "aab-aab-key-0123456789"
    stream = spell(DELTAS["chat text"], f"a{other}{KEY}s{KEY}", 2, BETWEEN["nothing"])
    assert read_text(DELTAS["chat text"], hide(stream, keys=(KEY, other))) == "is sa[key][key]s[key] z"


def count_shown(texts: list[str]) -> int:
    """How many of these texts need not wait."""
    whole = "".join(texts)
    waiting = next(size for size in range(len(KEY) - 1, -1, -1) if whole.endswith(KEY[:size]))
    return next(
        number
        for number in range(len(texts), -1, -1)
        if not waiting or len("".join(texts[:number])) <= len(whole) - waiting
    )


@pytest.mark.parametrize("name", DELTAS)
def test_ordinary_text_does_not_wait(name: str) -> None:
    """Only what may be the start of a key does, until the next event. Members that are the same in every event may end
    like one; only the first event waits for that."""
    words = [
        "The",
        " files",
        " s",
        "k",
        " are",
        " here",
        "s",
        "",
        "",
        " sk-",
        "ow",
        "ls",
        " sks",
        "k-own",
        ".",
        "as",
        "a",
    ]
    hidden, shown = AnswerKeys(KeyFilter([KEY])), 0
    for number, word in enumerate(words, 1):
        shown += hidden.feed(fill(DELTAS[name], word).encode()).count(b"data:")
        assert number == 1 or shown == count_shown(words[:number])


def test_words_of_a_protocol_do_not_wait() -> None:
    hidden = AnswerKeys(KeyFilter([KEY]))
    for opening in (
        {"type": "response.created", "response": {"status": "in_progress", "model": "gpt-s", "id": "s"}},
        {"type": "status", "index": 0, "delta": {"role": "ss", "content": ""}, "finish_reason": "tool_calls"},
    ):
        assert hidden.feed(event(opening).encode()) == event(opening).encode()


def test_what_ends_like_a_key_does_not_wait_for_ever() -> None:
    hidden = AnswerKeys(KeyFilter([KEY]))
    assert hidden.feed(fill(DELTAS["chat text"], "files").encode()) == b""
    shown = [hidden.feed(fill(DELTAS["chat text"], "").encode()) for _ in range(10)]
    assert [piece.count(b"data:") for piece in shown] == [0] * 4 + [6] + [1] * 5
    long = chat({"content": PLACE, "more": "x" * 10_000})
    sizes = [len(hidden.feed(fill(long, text).encode())) for text in (*KEY[:16], *[""] * 60)]
    assert max(sizes) > MAX_HELD
    assert not any(sizes[: MAX_HELD // 11_000])


def test_other_bodies_do_not_wait() -> None:
    for body in (b"x", b'{"a": "s', b"\x00\xffs", b"event: x"):
        assert AnswerKeys(KeyFilter([KEY])).feed(body).rstrip(b"s") == body.rstrip(b"s")


SPLIT = st.lists(
    st.sampled_from(
        [
            *("a", "s", "sk", "sk-own", '"', "\n", "\r", "\r\n", "\\u00", "\\", "/", "sk-own/key-01", KEY),
            *(
                "data: ",
                "da",
                'data: {"text":"',
                'data: {"text":"sk-own',
                'data: {"text":"/key-0123456789"}\n\n',
                '"}\n\n',
            ),
            base64.b64encode(KEY.encode()).decode(),
        ]
    )
)


@settings(max_examples=400, deadline=None)
@given(SPLIT)
def test_whatever_the_cuts_the_text_is_the_same(pieces: list[str]) -> None:
    hidden = AnswerKeys(KeyFilter([KEY]))
    shown = b"".join(hidden.feed(piece.encode()) for piece in pieces if piece) + hidden.close()
    assert shown.decode() == hide("".join(pieces))
    assert not hidden.is_waiting


def part(text: str, index: int) -> str:
    opened = {"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}
    closed = {"type": "content_block_stop", "index": index}
    return event(opened) + block({"type": "text_delta", "text": text}, index) + event(closed)


@pytest.mark.parametrize("size", [1, 2, 7, 11])
def test_a_key_in_several_parts_is_hidden(size: int) -> None:
    """Clients put the texts of all parts together."""
    pieces = ["is s", *(KEY[at : at + size] for at in range(0, len(KEY), size)), " z"]
    found = re.findall(r'"text":"(.*?)"', hide("".join(part(piece, index) for index, piece in enumerate(pieces))))
    assert "".join(found) == "is s[key] z"
    in_one_event = event({"candidates": [{"content": {"parts": [{"text": piece} for piece in pieces]}, "index": 0}]})
    assert "".join(re.findall(r'"text":"(.*?)"', hide(in_one_event))) == "is s[key] z"


def hide_body(body: str) -> str:
    return AnswerKeys(KeyFilter([KEY])).clean_body(body.encode()).decode()


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("size", [1, 2, 7, 11, 40])
def test_a_key_in_several_parts_of_a_whole_answer_is_hidden(size: int, indent: int | None) -> None:
    pieces = ["is s", *(KEY[at : at + size] for at in range(0, len(KEY), size)), f" {KEY[:5]}", " z", "\n\\ s"]
    parts = [{"type": "text", "text": piece, "annotations": [], "id": "part_s"} for piece in pieces]
    shown = json.loads(hide_body(json.dumps({"role": "assistant", "content": parts, "usage": {}}, indent=indent)))
    assert "".join(part["text"] for part in shown["content"]) == f"is s[key] {KEY[:5]} z\n\\ s"
    assert shown["role"] == "assistant"


@pytest.mark.parametrize("indent", [None, 2])
def test_a_data_url_in_a_whole_answer_makes_it_no_stream(indent: int | None) -> None:
    parts = [{"text": KEY[:5]}, {"text": KEY[5:]}, {"image_url": "data:image/png;base64,AAAA"}, {"text": "\ndata: x"}]
    shown = json.loads(hide_body(json.dumps({"content": parts}, indent=indent)))
    assert "".join(part.get("text", "") for part in shown["content"]) == "[key]\ndata: x"


def test_a_key_in_the_strings_of_a_list_is_hidden() -> None:
    """Legacy completions have the tokens of a text in a list. Those between the parts of a text do not belong to it."""
    pieces = ["is s", *(KEY[at : at + 4] for at in range(0, len(KEY), 4)), " z"]
    for indent in None, 2:
        shown = json.loads(hide_body(json.dumps({"a": [1, {"b": [None]}], "tokens": pieces}, indent=indent)))
        assert "".join(shown["tokens"]) == "is s[key] z"
    parts = [{"text": piece, "tags": ["x", "s"]} for piece in pieces]
    assert "".join(part["text"] for part in json.loads(hide_body(json.dumps(parts)))) == "is s[key] z"
    stream = "".join(event({"choices": [{"index": 0, "logprobs": {"tokens": [piece]}}]}) for piece in pieces)
    assert "".join(re.findall(r'"tokens":\["(.*?)"\]', hide(stream))) == "is s[key] z"


def test_keys_of_large_bodies_are_hidden_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes long for a body in which much looks like a key, and others must not wait."""
    threads: list[str] = []
    clean_body = AnswerKeys.clean_body

    def watch(keys: AnswerKeys, data: bytes) -> bytes:
        threads.append(threading.current_thread().name)
        return clean_body(keys, data)

    monkeypatch.setattr(AnswerKeys, "clean_body", watch)

    async def read(text: str) -> bytes | TransportError:
        body = json.dumps({"text": text}).encode()

        async def script(peer: Peer) -> None:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body), body)

        async with provider(script) as peer, client() as made:
            answer = await send_post(made, peer.address())
            answer.hide_keys((KEY,))
            return await answer.read(1 << 20)

    assert asyncio.run(read(KEY)) == b'{"text": "[key]"}'
    large = asyncio.run(read(f"{KEY[:3]}y " * LARGE_HIDDEN + KEY))
    assert isinstance(large, bytes)
    assert large.endswith(b' [key]"}')
    assert [name.startswith("toolwire-large-work") for name in threads] == [False, True]


def test_many_texts_that_end_like_a_key_take_linear_time() -> None:
    """Each was compared with all others: one event of 16 kB with a list of tokens stopped the event loop for seconds."""

    def read(count: int) -> int:
        keys = AnswerKeys(KeyFilter([KEY]))
        events = [event({"tokens": [f"{number} {KEY[:1]}" for number in range(count)]}) for _ in range(2)]
        return count_steps(lambda: [keys.feed(one.encode()) for one in (*events, event({"text": KEY[1:]}))])

    assert read(400) < 5 * read(100)


def test_large_bodies_are_searched_for_keys_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of 12 MB with escaped umlauts held up the event loop for 200 ms, although it ran in a thread."""
    sizes: list[int] = []
    is_clean = KeyFilter.is_clean

    def note_size(known: KeyFilter, data: bytes) -> bool:
        sizes.append(len(data))
        return is_clean(known, data)

    monkeypatch.setattr(KeyFilter, "is_clean", note_size)
    text = ("\u00e4" * 50 + KEY) * 10_000
    shown = AnswerKeys(KeyFilter([KEY])).clean_body(json.dumps({"text": text}).encode())
    assert json.loads(shown) == {"text": text.replace(KEY, "[key]")}
    assert max(sizes) < 2 * MAX_BODY


def test_a_whole_answer_without_a_key_stays_as_it_is() -> None:
    for texts in (["is s", "o", KEY[:9]], [KEY[3:], KEY[:3]], [KEY[:9], "x", KEY[9:]], ["\\u0073", '"s', "ss"]):
        body = json.dumps({"content": [{"text": text} for text in texts]})
        assert hide_body(body) == body


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_key_that_is_escaped_in_arguments_is_hidden(depth: int) -> None:
    """Arguments are JSON within JSON, and some arguments are JSON again."""
    text = '{"a":"' + "".join(f"\\u{ord(letter):04x}" for letter in KEY) + '"}'
    for _ in range(depth - 1):
        text = json.dumps({"a": text})
    for shown in (
        hide_body(json.dumps({"function": {"arguments": text}})),
        hide(chat({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})),
    ):
        assert "u006b" not in shown
        assert "[key]" in shown
