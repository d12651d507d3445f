"""Every client protocol against every provider protocol, streamed and whole, through real sockets.

The official SDKs talk to the gateway; behind it stands a scripted provider that refuses what the real one refuses. What
the client made of the answers, and what the provider was sent, must both be what was meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest
from google.genai import errors as genai_errors

from gateway.clients import CLIENTS, PNG, Conversation, Refused, Result, Task, Turn, close_all
from gateway.conftest import only_where
from gateway.provider import PROTOCOLS, RATE, SEALS, WAIT, Hold, Provider, Received, Script, ScriptedAnswer, Step
from waits import PATIENCE

MODELS = {
    "openai-chat": "chat/gpt-4.1",
    "openai-responses": "responses/gpt-5.5",
    "anthropic": "anthropic/claude-sonnet-5-5",
    "gemini": "gemini/gemini-3.8-flash",
}
THINKS = {**MODELS, "openai-chat": "chat/deepseek-reasoner"}

pytestmark = [
    pytest.mark.parametrize("source", CLIENTS),
    pytest.mark.parametrize("target", PROTOCOLS),
    pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"]),
    # The SDK's parsed subclasses do not match the types of the fields that hold them when it sends them back.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning"),
]

PARIS = ("get_weather", {"city": "Paris"})
OSLO = ("get_weather", {"city": "Oslo"})
TIME = ("get_time", {"city": "Rome"})
DONE = "It is 15 °C in Paris."

Start = Callable[..., tuple[Conversation, Script]]


@pytest.fixture(scope="module", autouse=True)
def _clients(gateway: str) -> Iterator[None]:
    yield
    close_all()


@pytest.fixture
def start(provider: Provider, gateway: str, source: str, target: str, stream: bool) -> Start:
    """A client with a task, and the talk that the provider will have with it."""

    def begin(*steps: ScriptedAnswer | Step, model: str = "", **task: Any) -> tuple[Conversation, Script]:
        talk = provider.script(*steps)
        whole = Task(f"How is the weather? {talk.mark}", **task)
        return CLIENTS[source](gateway, model or MODELS[target], stream, whole), talk

    return begin


# --- what the provider was sent ---------------------------------------------------------------------------------------


def read_call_results(asked: Received) -> list[tuple[str, Any, str, bool]]:
    """Every call of a history with its result: name, arguments, text, and whether it is marked as failed."""
    return READERS[asked.protocol](asked.body)


def _join_results(
    calls: dict[str, tuple[str, Any]], results: list[tuple[str, str, bool]]
) -> list[tuple[str, Any, str, bool]]:
    assert list(calls) == [id for id, _, _ in results]
    return [(*calls[id], text, failed) for id, text, failed in results]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _chat(body: Any) -> list[tuple[str, Any, str, bool]]:
    made = [call for message in body["messages"] for call in message.get("tool_calls") or ()]
    calls = {call["id"]: (call["function"]["name"], json.loads(call["function"]["arguments"])) for call in made}
    tools = [message for message in body["messages"] if message["role"] == "tool"]
    return _join_results(
        calls, [(m["tool_call_id"], _text(m["content"]), "error" in _text(m["content"]).lower()) for m in tools]
    )


def _responses(body: Any) -> list[tuple[str, Any, str, bool]]:
    made = [item for item in body["input"] if item.get("type") == "function_call"]
    calls = {item["call_id"]: (item["name"], json.loads(item["arguments"])) for item in made}
    given = [item for item in body["input"] if item.get("type") == "function_call_output"]
    return _join_results(
        calls, [(i["call_id"], _text(i["output"]), "error" in _text(i["output"]).lower()) for i in given]
    )


def _messages(body: Any) -> list[tuple[str, Any, str, bool]]:
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    calls = {block["id"]: (block["name"], block["input"]) for block in blocks if block["type"] == "tool_use"}
    given = [block for block in blocks if block["type"] == "tool_result"]
    return _join_results(
        calls,
        [
            (b["tool_use_id"], _text(b["content"]), bool(b.get("is_error")) or "Error" in _text(b["content"]))
            for b in given
        ],
    )


def _generate(body: Any) -> list[tuple[str, Any, str, bool]]:
    parts = [part for content in body["contents"] for part in content["parts"]]
    made = [part["functionCall"] for part in parts if "functionCall" in part]
    given = [part["functionResponse"] for part in parts if "functionResponse" in part]
    calls = {call["id"]: (call["name"], call["args"]) for call in made}
    return _join_results(calls, [(g["id"], str(g["response"]), "error" in str(g["response"]).lower()) for g in given])


READERS = {"openai-chat": _chat, "openai-responses": _responses, "anthropic": _messages, "gemini": _generate}


def list_calls(turn: Turn) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in turn.calls]


# --- what works ------------------------------------------------------------------------------------------------------


def test_one_call_its_result_and_the_end(start: Start, stream: bool, target: str) -> None:
    client, talk = start(
        ScriptedAnswer("Let me look.", (PARIS,)), ScriptedAnswer(DONE), results={"Paris": Result("15 °C")}
    )
    first, last = client.run()
    assert (first.text, list_calls(first)) == ("Let me look.", [PARIS])
    assert (last.text, last.calls) == (DONE, [])
    assert (first.usage, last.usage) == ((25, 12), (25, 12))
    assert [(asked.protocol, asked.stream) for asked in talk.asked] == [(target, stream)] * 2
    ((name, arguments, text, failed),) = read_call_results(talk.asked[1])
    assert (name, arguments, failed) == (*PARIS, False)
    assert "15 °C" in text
    assert "Be brief." in talk.asked[1].raw


def test_parallel_calls_keep_their_results(start: Start) -> None:
    results = {"Paris": Result("15 °C"), "Oslo": Result("3 °C"), "Rome": Result("noon")}
    client, talk = start(
        ScriptedAnswer("", (PARIS, OSLO, TIME)), ScriptedAnswer("", (OSLO,)), ScriptedAnswer(DONE), results=results
    )
    turns = client.run()
    assert [list_calls(turn) for turn in turns] == [[PARIS, OSLO, TIME], [OSLO], []]
    ids = [call.id for turn in turns for call in turn.calls]
    assert len(set(ids)) == 4
    told = read_call_results(talk.asked[2])
    assert [(name, arguments) for name, arguments, _, _ in told] == [PARIS, OSLO, TIME, OSLO]
    assert all(wanted in told[at][2] for at, wanted in enumerate(("15 °C", "3 °C", "noon", "3 °C")))


def test_a_failing_tool(start: Start) -> None:
    results = {"Paris": Result("no such city", failed=True), "Oslo": Result("3 °C")}
    client, talk = start(ScriptedAnswer("", (PARIS, OSLO)), ScriptedAnswer(DONE), results=results)
    assert client.run()[-1].text == DONE
    first, second = read_call_results(talk.asked[1])
    assert "no such city" in first[2]
    assert (first[3], second[3]) == (True, False)


def test_an_image_of_the_user(start: Start) -> None:
    client, talk = start(ScriptedAnswer(DONE), image=True)
    assert client.run()[-1].text == DONE
    assert images(talk.asked[0]) == 1


@only_where(lambda source, **_: bool(CLIENTS[source].result_images))
def test_an_image_in_a_result(start: Start, source: str) -> None:
    client, talk = start(ScriptedAnswer("", (PARIS, OSLO)), ScriptedAnswer(DONE), results={
        "Paris": Result("The plot:", image=True), "Oslo": Result("3 °C")
    })  # fmt: skip
    assert client.run()[-1].text == DONE
    assert images(talk.asked[1]) == 1
    told = read_call_results(talk.asked[1])
    assert "The plot:" in told[0][2]
    assert "3 °C" in told[1][2]


def test_reasoning_goes_back_to_its_maker(start: Start, source: str, target: str) -> None:
    thought = "Paris, then."
    client, talk = start(
        ScriptedAnswer("Let me look.", (PARIS, OSLO), thought), ScriptedAnswer("", (TIME,), "And Rome."), ScriptedAnswer(DONE),
        model=THINKS[target], thinking=True,
        results={"Paris": Result("15 °C"), "Oslo": Result("3 °C"), "Rome": Result("noon")},
    )  # fmt: skip
    first, second, last = client.run()
    assert last.text == DONE
    assert (first.thinking, second.thinking) == (thought, "And Rome.")
    wanted = [thought, "And Rome."] if target == "openai-chat" else [SEALS[target]] * 2
    if CLIENTS[source].seals or source == target:
        for asked, count in ((talk.asked[1], 1), (talk.asked[2], 2)):
            held = list_seals(asked)
            assert held == wanted[:count]


def list_seals(asked: Received) -> list[str]:
    """The seals that a provider got back, in their order."""
    body = asked.body
    found: dict[str, Callable[[], list[str | None]]] = {
        "openai-chat": lambda: [m.get("reasoning_content") for m in body["messages"]],
        "openai-responses": lambda: [item.get("encrypted_content") for item in body["input"]],
        "anthropic": lambda: [
            b.get("signature") for m in body["messages"] for b in m["content"] if isinstance(b, dict)
        ],
        "gemini": lambda: [part.get("thoughtSignature") for c in body["contents"] for part in c["parts"]],
    }
    return [to_standard_base64(seal) for seal in found[asked.protocol]() if seal]


def to_standard_base64(text: str) -> str:
    """Google's SDK writes bytes in the other alphabet of base64; they are the same bytes."""
    return text.replace("_", "/").replace("-", "+") if text not in SEALS.values() else text


def images(asked: Received) -> int:
    return to_standard_base64(asked.raw).count(PNG)


# --- while it streams -------------------------------------------------------------------------------------------------

WORDS_LATER = "These words come in three pieces."
FIRST_PIECE = {"openai-chat": 2, "openai-responses": 5, "anthropic": 3, "gemini": 1}
"""How many frames of each protocol hold the first piece of a text."""


@pytest.fixture
def hold() -> Iterator[Hold]:
    made = Hold()
    yield made
    made.close()


@only_where(lambda stream, **_: stream)
def test_pieces_arrive_when_they_come(start: Start, target: str, hold: Hold) -> None:
    """The provider does not go on before the client has the first piece."""
    client, _ = start(Step(ScriptedAnswer(WORDS_LATER), hold=hold, after=FIRST_PIECE[target]))
    pieces = client.pieces()
    first = next(pieces)
    assert WORDS_LATER.startswith(first)
    hold.release()
    assert first + "".join(pieces) == WORDS_LATER


@only_where(lambda stream, source, **_: stream and source != "gemini")
def test_a_client_that_leaves_is_no_longer_served(start: Start, target: str, hold: Hold) -> None:
    """Google's SDK is left out: it reads on until its stream is collected as garbage."""
    client, _ = start(Step(ScriptedAnswer(WORDS_LATER), hold=hold, after=FIRST_PIECE[target]))
    pieces = client.pieces()
    next(pieces)
    pieces.close()  # type: ignore[attr-defined]
    assert hold.gone.wait(PATIENCE)


# --- what fails ------------------------------------------------------------------------------------------------------

OPENAI = {
    "bad": (openai.BadRequestError, 400),
    "rate": (openai.RateLimitError, 429),
    "busy": (openai.InternalServerError, 503),
    "context": (openai.BadRequestError, 400),
}
RAISED: dict[str, dict[str, tuple[type[Exception], int]]] = {
    "openai-chat": OPENAI,
    "openai-responses": OPENAI,
    "anthropic": {
        "bad": (anthropic.BadRequestError, 400),
        "rate": (anthropic.RateLimitError, 429),
        "busy": (anthropic.InternalServerError, 529),
        "context": (anthropic.BadRequestError, 400),
    },
    "gemini": {
        "bad": (genai_errors.ClientError, 400),
        "rate": (genai_errors.ClientError, 429),
        "busy": (genai_errors.ServerError, 503),
        "context": (genai_errors.ClientError, 400),
    },
    "unified": {"bad": (Refused, 400), "rate": (Refused, 429), "busy": (Refused, 503), "context": (Refused, 400)},
}


def status_of(error: Any) -> int:
    return next(
        getattr(error, key) for key in ("status_code", "code", "status") if isinstance(getattr(error, key, None), int)
    )


def wait_of(error: Any, source: str) -> float:
    """How long the client is told to wait, where clients of this protocol look for it."""
    if source == "gemini":
        info = next(one for one in error.details["error"]["details"] if one["@type"].endswith("google.rpc.RetryInfo"))
        return float(info["retryDelay"].removesuffix("s"))
    if source == "unified":
        assert float(error.headers["retry-after"]) == error.error["retry_after"]
        return float(error.error["retry_after"])
    return float(error.response.headers["retry-after"])


@pytest.mark.parametrize("kind", ["bad", "rate", "busy", "context"])
def test_a_refusal_raises_what_the_sdk_has_for_it(start: Start, source: str, target: str, kind: str) -> None:
    client, talk = start(Step(fails=kind))
    raised, status = RAISED[source][kind]
    with pytest.raises(raised) as caught:
        client.run()
    error: Any = caught.value
    assert status_of(error) == status
    assert len(talk.asked) == 1
    if kind == "bad":
        assert "That cannot be done." in str(error)
    if kind == "rate":
        assert RATE in str(error)
        assert wait_of(error, source) == WAIT
    if kind == "context":
        assert WORDS[source](error)


WORDS: dict[str, Callable[[Any], bool]] = {
    "openai-chat": lambda error: error.code == "context_length_exceeded",
    "openai-responses": lambda error: error.code == "context_length_exceeded",
    "anthropic": lambda error: "prompt is too long" in str(error),
    "gemini": lambda error: error.status == "INVALID_ARGUMENT",
    "unified": lambda error: error.error["type"] == "context_window",
}
"""What agents look for to know that the conversation is too long."""


@only_where(lambda stream, breaks, **_: stream or breaks == "cut")
@pytest.mark.parametrize("breaks", ["error", "cut", "ended"])
def test_a_broken_answer_is_never_a_success(start: Start, source: str, breaks: Any) -> None:
    client, talk = start(Step(ScriptedAnswer("Half of what I have to say.", (PARIS,)), breaks=breaks))
    with pytest.raises(CLIENTS[source].raises):
        client.run()
    assert len(talk.asked) == 1
