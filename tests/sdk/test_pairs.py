"""Every sample stream of every protocol, written for the clients of every other: the official SDKs add it up.

What an SDK raises for one of ours, it must also raise for the same ending from the real provider: only failures and cut
answers may raise.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from google import genai
from google.genai import errors as gemini_errors

from material import SAMPLES, sample_streams
from toolwire import Stream
from toolwire.core.events import fold
from toolwire.core.ir import Call, Finish, Response, Text
from toolwire.core.json_values import decode_object_or_none
from toolwire.protocols import find_codec

Serve = Callable[[int, Mapping[str, str], bytes], str]

FOLDERS = {
    "openai_chat": "openai-chat",
    "openai_responses": "openai-responses",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
SOURCES = [
    (name, path)
    for folder, name in FOLDERS.items()
    for path in sample_streams(folder)
    if path.stem != "interactions_function_call"
]


def meant(protocol: str, data: bytes) -> Response:
    reader = find_codec(protocol).make_stream_reader()
    return fold([*reader.feed(data), *reader.close()])


def text_and_calls(response: Response) -> tuple[str, list[tuple[str, Any]]]:
    """The text and the calls of an answer: what an SDK must add up to."""
    parts = response.choices[0].parts if response.choices else ()
    text = "".join(part.text for part in parts if isinstance(part, Text))
    whole = [part for part in parts if isinstance(part, Call) and part.kind == "function" and not part.namespace]
    return text, [(part.name, read) for part in whole if (read := decode_object_or_none(part.arguments)) is not None]


def chat(url: str) -> tuple[str, list[tuple[str, Any]]]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    text, calls = "", {}
    with client.chat.completions.stream(model="m", messages=[{"role": "user", "content": "q"}]) as stream:
        for event in stream:
            if event.type == "chunk":
                for choice in event.chunk.choices[:1]:
                    text += choice.delta.content or "" if choice.index == 0 else ""
                    for call in choice.delta.tool_calls or ():
                        if call.function is None:
                            # The helper itself cannot add up freeform calls; that they are there is all it can tell.
                            return text, []
                        name, arguments = calls.get(call.index, ("", ""))
                        calls[call.index] = (
                            name + (call.function.name or ""),
                            arguments + (call.function.arguments or ""),
                        )
        final = stream.get_final_completion()
    assert final.choices[0].finish_reason
    return text, [(name, json.loads(arguments)) for name, arguments in calls.values()]


def responses(url: str) -> tuple[str, list[tuple[str, Any]]]:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    with client.responses.stream(model="m", input="q") as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    calls = [
        (item.name, json.loads(item.arguments))
        for item in final.output
        if item.type == "function_call" and not item.namespace
    ]
    return final.output_text, calls


def messages(url: str) -> tuple[str, list[tuple[str, Any]]]:
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    with client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "q"}]) as stream:
        final = stream.get_final_message()
    text = "".join(block.text for block in final.content if block.type == "text")
    return text, [(block.name, block.input) for block in final.content if block.type == "tool_use"]


def gemini(url: str) -> tuple[str, list[tuple[str, Any]]]:
    client = genai.Client(api_key="k", http_options={"base_url": url})
    text, calls = "", []
    for chunk in client.models.generate_content_stream(model="m", contents="q"):
        content = chunk.candidates[0].content if chunk.candidates else None
        for part in (content.parts or ()) if content else ():
            text += part.text or "" if not part.thought else ""
            if part.function_call:
                calls.append((part.function_call.name or "", part.function_call.args or {}))
    return text, calls


SDKS: dict[str, Callable[[str], tuple[str, list[tuple[str, Any]]]]] = {
    "openai-chat": chat,
    "openai-responses": responses,
    "anthropic": messages,
    "gemini": gemini,
}
REFUSALS = (openai.OpenAIError, anthropic.AnthropicError, gemini_errors.APIError, RuntimeError)


def may_raise(response: Response, finish: Finish | None) -> bool:
    return (
        response.failure is not None
        or finish is None
        or finish.kind in ("length", "context", "filter", "refusal", "pause")
    )


@pytest.mark.parametrize("target", SDKS)
@pytest.mark.parametrize(("source", "path"), SOURCES, ids=[f"{path.parent.name}/{path.stem}" for _, path in SOURCES])
def test_official_sdks_add_up_what_we_write(serve: Serve, source: str, path: Path, target: str) -> None:
    if source == target:
        return
    data = path.read_bytes()
    response = meant(source, data)
    stream = Stream(source=source, target=target)
    out = stream.feed(data) + stream.close()
    url = serve(200, {"content-type": "text/event-stream"}, out)
    finish = response.choices[0].finish if response.choices else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            text, calls = SDKS[target](url)
        except REFUSALS:
            assert may_raise(response, finish), out.decode()
            return
    assert response.failure is None
    wanted_text, wanted_calls = text_and_calls(response)
    assert wanted_text in text or finish is None
    if finish is None or finish.kind != "length":
        assert [call for call in calls if call in wanted_calls] == wanted_calls


def test_there_are_samples() -> None:
    assert len(SOURCES) > 70, SAMPLES
