"""What this room writes, judged by the official SDK over a socket: streams, chats, whole answers and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from material import SAMPLES
from toolwire.core.codec import WriteContext
from toolwire.core.events import fold, unfold
from toolwire.core.ir import (
    Call,
    Choice,
    Failure,
    Finish,
    Reasoning,
    Refusal,
    Response,
    Seal,
    Text,
    Usage,
    strip_origins,
)
from toolwire.core.json_values import decode, encode
from toolwire.core.losses import Ledger
from toolwire.protocols import CODECS, find_codec
from toolwire.protocols.gemini import CODEC

Serve = Callable[[int, Mapping[str, str], bytes], str]
SSE = {"content-type": "text/event-stream"}

FOLDERS = {name.replace("-", "_"): name for name in CODECS}
STREAMS = [path for folder in FOLDERS for path in sorted((SAMPLES / folder).glob("*.sse"))]
ids = [f"{path.parent.name}/{path.stem}" for path in STREAMS]


Ask = Callable[[int, Mapping[str, str], bytes], genai.Client]


@pytest.fixture
def ask(serve: Serve) -> Iterator[Ask]:
    """A client that gets this answer; it must outlive its streams."""
    clients: list[genai.Client] = []

    def connect(status: int, headers: Mapping[str, str], body: bytes) -> genai.Client:
        options = types.HttpOptions(base_url=serve(status, headers, body))
        clients.append(genai.Client(api_key="k", http_options=options))
        return clients[-1]

    yield connect
    for client in clients:
        client.close()


def fold_stream(path: Path) -> Response:
    reader = find_codec(FOLDERS[path.parent.name]).make_stream_reader()
    response: Response = strip_origins(fold([*reader.feed(path.read_bytes()), *reader.close()]))
    return response


def rewritten(response: Response) -> bytes:
    writer = CODEC.make_stream_writer(Ledger("elsewhere", CODEC.name), WriteContext(seed="s"))
    return b"".join(writer.write(event) for event in unfold(response)) + writer.close()


def whole_calls(response: Response) -> list[tuple[str, Any]]:
    parts = response.choices[0].parts if response.choices else ()
    calls = [part for part in parts if isinstance(part, Call) and not part.incomplete]
    return [(call.name, _arguments(call)) for call in calls]


def _arguments(call: Call) -> Any:
    try:
        value = json.loads(call.arguments or "{}")
    except ValueError:
        return {"_raw": call.arguments}
    return value if isinstance(value, dict) else {"_raw": call.arguments}


@pytest.mark.parametrize("path", STREAMS, ids=ids)
def test_every_stream_that_we_write_is_understood(path: Path, ask: Ask) -> None:
    response = fold_stream(path)
    stream = ask(200, SSE, rewritten(response)).models.generate_content_stream(model="m", contents="hi")
    if response.failure is not None:
        with pytest.raises(errors.APIError) as caught:
            list(stream)
        assert response.failure.message in str(caught.value)
        return
    chunks = list(stream)
    first = [one for chunk in chunks for one in chunk.candidates or () if not one.index]
    parts = [part for one in first if one.content is not None for part in one.content.parts or ()]
    called = [(part.function_call.name, part.function_call.args) for part in parts if part.function_call]
    assert called == whole_calls(response)
    said = "".join(part.text for part in response.choices[0].parts if isinstance(part, (Text, Refusal)))
    assert "".join(part.text or "" for part in parts if not part.thought) == said
    last = chunks[-1]
    assert last.candidates
    assert last.candidates[0].finish_reason is not None
    assert last.candidates[0].content is not None
    assert last.candidates[0].content.parts
    if response.usage is not None:
        assert last.usage_metadata is not None
        assert last.usage_metadata.prompt_token_count == response.usage.input


ANSWER = Response(
    "r",
    "gemini-3.8-flash",
    choices=(
        Choice(
            0,
            (
                Reasoning("Hm.", "summary", seal=Seal("gemini", "QUJD")),
                Text("Looking."),
                Call("c1", "look", '{"at": "sky"}', seal=Seal("gemini", "REVG")),
            ),
            Finish("calls"),
        ),
    ),
    usage=Usage(5, 6, reasoning=2),
)


def test_a_chat_keeps_the_turn_in_its_history(ask: Ask) -> None:
    chat = ask(200, SSE, rewritten(ANSWER)).chats.create(model="m")
    list(chat.send_message_stream("hi"))
    parts = [part for content in chat.get_history()[1:] for part in content.parts or []]
    signed = [part.thought_signature for part in parts if part.thought_signature]
    assert signed == [b"ABC", b"DEF"]
    assert [part.function_call.id for part in parts if part.function_call] == ["c1"]
    assert "".join(part.text or "" for part in parts if not part.thought) == "Looking."


def test_what_a_chat_sends_back_is_what_we_wrote(ask: Ask) -> None:
    """One content for each chunk, signatures re-encoded: it still reads as the same parts, in the same order."""
    chat = ask(200, SSE, rewritten(ANSWER)).chats.create(model="m")
    list(chat.send_message_stream("hi"))
    history = [content.model_dump(mode="json", by_alias=True, exclude_none=True) for content in chat.get_history()]
    request = CODEC.read_request(decode(json.dumps({"contents": history})))
    parts = [part for turn in request.turns[1:] for part in strip_origins(turn.parts)]
    assert parts[:4] == [
        Reasoning("Hm.", "summary"),
        Reasoning("", "summary", seal=Seal("gemini", "QUJD")),
        Text("Looking."),
        Call("c1", "look", '{"at":"sky"}', seal=Seal("gemini", "REVG")),
    ]


def test_a_whole_answer_is_understood(ask: Ask) -> None:
    body = encode(CODEC.write_response(ANSWER, Ledger("elsewhere", CODEC.name), WriteContext()))
    answer = ask(200, {"content-type": "application/json"}, body).models.generate_content(model="m", contents="hi")
    assert answer.text == "Looking."
    assert answer.function_calls
    assert answer.function_calls[0].args == {"at": "sky"}
    assert answer.usage_metadata is not None
    assert (answer.usage_metadata.total_token_count, answer.usage_metadata.thoughts_token_count) == (11, 2)
    assert answer.response_id == "r"


@pytest.mark.parametrize(
    ("failure", "kind", "code"),
    [
        (Failure("rate", "slow down", 429, retry_after=3), errors.ClientError, 429),
        (Failure("overloaded", "busy", 529), errors.ServerError, 503),
        (Failure("context", "too much", 400), errors.ClientError, 400),
        (Failure("upstream", "broken"), errors.ServerError, 502),
    ],
)
def test_errors_raise_what_they_should(failure: Failure, kind: type[errors.APIError], code: int, ask: Ask) -> None:
    sent = CODEC.write_error(failure)
    caller = ask(sent.status, {"content-type": "application/json", **sent.headers}, encode(sent.body))
    with pytest.raises(kind) as caught:
        caller.models.generate_content(model="m", contents="hi")
    assert caught.value.code == code
    assert failure.message in str(caught.value)
