"""Clients of every protocol as people write them: the official SDKs with their own message objects, and plain JSON.

Each holds one conversation with tools: it asks, runs what is called, sends the results back, and ends with the text.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import urlsplit

import anthropic
import httpx2
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types

import toolwire
from waits import PATIENCE

KEY = "key-of-the-client"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "A city"}}, "required": ["city"]}
TOOLS = {"get_weather": "The weather in a city, now.", "get_time": "The time of day in a city."}


@dataclass(frozen=True)
class Result:
    text: str
    failed: bool = False
    image: bool = False


@dataclass(frozen=True)
class Task:
    """What the user wants, and what the tools give, by the city that they are asked for."""

    prompt: str
    results: Mapping[str, Result] = field(default_factory=dict)
    image: bool = False
    thinking: bool = False
    tools: Mapping[str, str] = field(default_factory=lambda: TOOLS)


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """One answer: what was said, called and thought, and the tokens that went in and out."""

    text: str
    calls: list[Call]
    thinking: str
    usage: tuple[int | None, int | None]


class Conversation:
    """A client with one task; subclasses speak a protocol."""

    result_images: ClassVar[bool] = True
    error_flag: ClassVar[bool] = True
    seals: ClassVar[bool] = True
    raises: ClassVar[tuple[type[Exception], ...]] = ()
    open_sdk: ClassVar[Callable[[str], Any]]
    """The SDK's client for the address of a gateway."""

    def __init__(self, base: str, model: str, stream: bool, task: Task) -> None:
        self.base, self.model, self.stream, self.task = base, model, stream, task

    def turn(self) -> Turn:
        raise NotImplementedError

    def ask(self, prompt: str, image: bool = False) -> None:
        """The user says something more."""
        raise NotImplementedError

    def move(self, model: str) -> None:
        """Go on with another model."""
        self.model = model

    def answer(self, given: list[tuple[Call, Result]]) -> None:
        raise NotImplementedError

    def pieces(self) -> Iterator[str]:
        """The text of a stream as it grows; whoever stops asking leaves."""
        raise NotImplementedError

    def run(self, models: Sequence[str] = ()) -> list[Turn]:
        """To the end: the turns until one calls nothing. After each the next of these models goes on, if there is one."""
        turns = [self.turn()]
        while turns[-1].calls and self.task.results:
            if len(turns) <= len(models):
                self.move(models[len(turns) - 1])
            self.answer([(call, self.task.results[call.arguments["city"]]) for call in turns[-1].calls])
            turns.append(self.turn())
        return turns


# --- SDK clients are dear to make and cheap to use --------------------------------------------------------------------

_opened: dict[tuple[Any, str], Any] = {}
_losses: list[str] = []


def losses() -> set[str]:
    """The codes of all that the gateway told as lost since this was last asked."""
    codes = {code for told in _losses for code in told.partition("codes=")[2].split(",") if code}
    _losses.clear()
    return codes


def _collect_losses() -> dict[str, Any]:
    """Hears what is lost, which no SDK shows."""
    return {"response": [lambda response: _losses.append(response.headers.get("x-toolwire-losses", ""))]}


def make_once(make: Callable[[str], Any]) -> Callable[[str], Any]:
    def make_or_reuse(base: str) -> Any:
        if (make, base) not in _opened:
            _opened[make, base] = make(base)
        return _opened[make, base]

    return make_or_reuse


IN_PROCESS = "http://in-process.invalid"
"""Before the path of a configuration, in place of the address of a gateway: the SDK has Toolwire inside."""


def _open_inside(place: str, hooks: dict[str, Any]) -> httpx2.Client:
    """With `?record=FOLDER` or `?replay=FOLDER` behind the path of the configuration."""
    path, _, query = place.partition("?")
    name, _, folder = query.partition("=")
    folders: dict[str, Any] = {name: folder} if name else {}
    return toolwire.http_client(path or None, event_hooks=hooks, **folders)


def make_http_client(base: str) -> tuple[httpx2.Client, str]:
    """The client for an SDK, and the address that it calls."""
    is_inside = base.startswith(IN_PROCESS)
    hooks = _collect_losses()
    client = _open_inside(base.removeprefix(IN_PROCESS), hooks) if is_inside else httpx2.Client(event_hooks=hooks)
    _opened[client, base] = client  # google-genai does not close what it is given
    return client, IN_PROCESS if is_inside else base


@make_once
def openai_sdk(base: str) -> openai.OpenAI:
    listening, url = make_http_client(base)
    return openai.OpenAI(api_key=KEY, base_url=f"{url}/v1", max_retries=0, timeout=PATIENCE, http_client=listening)


@make_once
def anthropic_sdk(base: str) -> anthropic.Anthropic:
    listening, url = make_http_client(base)
    return anthropic.Anthropic(api_key=KEY, base_url=url, max_retries=0, timeout=PATIENCE, http_client=listening)


@make_once
def genai_sdk(base: str) -> genai.Client:
    listening, url = make_http_client(base)
    options: Any = {"base_url": url, "timeout": int(PATIENCE * 1000), "httpx_client": listening}
    return genai.Client(api_key=KEY, http_options=options)


def close_all() -> None:
    """Whoever asks again gets a new one."""
    while _opened:
        _opened.popitem()[1].close()


# --- openai, Chat Completions ----------------------------------------------------------------------------------------


class Chat(Conversation):
    open_sdk = staticmethod(openai_sdk)
    result_images = False
    error_flag = False
    seals = False
    raises = (openai.APIError,)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.messages: list[Any] = [{"role": "system", "content": "Be brief."}]
        self.ask(self.task.prompt, self.task.image)

    def ask(self, prompt: str, image: bool = False) -> None:
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
        content: Any = [{"type": "text", "text": prompt}, picture] if image else prompt
        self.messages.append({"role": "user", "content": content})

    def turn(self) -> Turn:
        asked: dict[str, Any] = {"model": self.model, "messages": self.messages}
        asked["tools"] = [
            {"type": "function", "function": {"name": name, "description": about, "parameters": CITY}}
            for name, about in self.task.tools.items()
        ]
        if self.task.thinking:
            asked["reasoning_effort"] = "medium"
        sdk = self.open_sdk(self.base)
        if self.stream:
            with sdk.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
                whole = stream.get_final_completion()
        else:
            whole = sdk.chat.completions.create(**asked)
        message = whole.choices[0].message
        self.messages.append(message)
        calls = [
            Call(call.id, call.function.name, json.loads(call.function.arguments)) for call in message.tool_calls or ()
        ]
        assert whole.choices[0].finish_reason == ("tool_calls" if calls else "stop")
        usage = (whole.usage.prompt_tokens, whole.usage.completion_tokens) if whole.usage else (None, None)
        return Turn(message.content or "", calls, getattr(message, "reasoning_content", None) or "", usage)

    def pieces(self) -> Iterator[str]:
        asked: Any = {"model": self.model, "messages": self.messages, "stream": True}
        with self.open_sdk(self.base).chat.completions.create(**asked) as stream:
            for chunk in stream:
                yield from (choice.delta.content for choice in chunk.choices if choice.delta.content)

    def answer(self, given: list[tuple[Call, Result]]) -> None:
        for call, result in given:
            text = f"Error: {result.text}" if result.failed else result.text
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": text})


# --- openai, Responses -----------------------------------------------------------------------------------------------


class Responses(Conversation):
    open_sdk = staticmethod(openai_sdk)
    error_flag = False
    raises = (openai.APIError, RuntimeError)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.input: list[Any] = []
        self.ask(self.task.prompt, self.task.image)

    def ask(self, prompt: str, image: bool = False) -> None:
        content: list[Any] = [{"type": "input_text", "text": prompt}]
        if image:
            content.append({"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"})
        self.input.append({"role": "user", "content": content})

    def turn(self) -> Turn:
        asked: dict[str, Any] = {"model": self.model, "input": self.input, "instructions": "Be brief.", "store": False}
        asked["include"] = ["reasoning.encrypted_content"]
        asked["tools"] = [
            {"type": "function", "name": name, "description": about, "parameters": CITY, "strict": False}
            for name, about in self.task.tools.items()
        ]
        if self.task.thinking:
            asked["reasoning"] = {"effort": "medium", "summary": "auto"}
        sdk = self.open_sdk(self.base)
        if self.stream:
            with sdk.responses.stream(**asked) as stream:
                whole = stream.get_final_response()
        else:
            whole = sdk.responses.create(**asked)
        assert whole.status == "completed"
        self.input += whole.output
        calls = [
            Call(item.call_id, item.name, json.loads(item.arguments))
            for item in whole.output
            if item.type == "function_call"
        ]
        reasoned = [item for item in whole.output if item.type == "reasoning"]
        thoughts = [part.text for item in reasoned for part in (*item.summary, *(item.content or ()))]
        usage = (whole.usage.input_tokens, whole.usage.output_tokens) if whole.usage else (None, None)
        return Turn(whole.output_text, calls, "".join(thoughts), usage)

    def pieces(self) -> Iterator[str]:
        asked: Any = {"model": self.model, "input": self.input, "stream": True}
        with self.open_sdk(self.base).responses.create(**asked) as stream:
            for event in stream:
                if event.type == "response.output_text.delta":
                    yield event.delta

    def answer(self, given: list[tuple[Call, Result]]) -> None:
        for call, result in given:
            output: Any = f"Error: {result.text}" if result.failed else result.text
            if result.image:
                image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}
                output = [{"type": "input_text", "text": result.text}, image]
            self.input.append({"type": "function_call_output", "call_id": call.id, "output": output})


# --- anthropic -------------------------------------------------------------------------------------------------------

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


class Messages(Conversation):
    open_sdk = staticmethod(anthropic_sdk)
    raises = (anthropic.APIError,)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.messages: list[Any] = []
        self.ask(self.task.prompt, self.task.image)

    def ask(self, prompt: str, image: bool = False) -> None:
        content: list[Any] = [{"type": "text", "text": prompt}, *([IMAGE] if image else ())]
        self.messages.append({"role": "user", "content": content})

    def turn(self) -> Turn:
        asked: dict[str, Any] = {"model": self.model, "messages": self.messages, "max_tokens": 4000}
        asked["system"] = "Be brief."
        asked["tools"] = [
            {"name": name, "description": about, "input_schema": CITY} for name, about in self.task.tools.items()
        ]
        if self.task.thinking:
            asked["thinking"] = {"type": "adaptive"}
        sdk = self.open_sdk(self.base)
        if self.stream:
            with sdk.messages.stream(**asked) as stream:
                whole = stream.get_final_message()
        else:
            whole = sdk.messages.create(**asked)
        self.messages.append({"role": "assistant", "content": whole.content})
        calls = [Call(block.id, block.name, block.input) for block in whole.content if block.type == "tool_use"]
        assert whole.stop_reason == ("tool_use" if calls else "end_turn")
        text = "".join(block.text for block in whole.content if block.type == "text")
        thoughts = "".join(block.thinking for block in whole.content if block.type == "thinking")
        return Turn(text, calls, thoughts, (whole.usage.input_tokens, whole.usage.output_tokens))

    def pieces(self) -> Iterator[str]:
        asked: Any = {"model": self.model, "messages": self.messages, "max_tokens": 4000}
        with self.open_sdk(self.base).messages.stream(**asked) as stream:
            yield from stream.text_stream

    def answer(self, given: list[tuple[Call, Result]]) -> None:
        blocks = []
        for call, result in given:
            content = [{"type": "text", "text": result.text}, *([IMAGE] if result.image else ())]
            block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call.id, "content": content}
            blocks.append({**block, "is_error": True} if result.failed else block)
        self.messages.append({"role": "user", "content": blocks})


# --- google-genai ----------------------------------------------------------------------------------------------------


class Generate(Conversation):
    open_sdk = staticmethod(genai_sdk)
    raises = (genai_errors.APIError,)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        declared = [
            types.FunctionDeclaration(name=name, description=about, parameters_json_schema=CITY)
            for name, about in self.task.tools.items()
        ]
        self.config = types.GenerateContentConfig(
            system_instruction="Be brief.",
            tools=[types.Tool(function_declarations=declared)],
            thinking_config=types.ThinkingConfig(include_thoughts=True) if self.task.thinking else None,
        )
        self.chat = self.open_sdk(self.base).chats.create(model=self.model, config=self.config)
        self.ask(self.task.prompt, self.task.image)

    def move(self, model: str) -> None:
        said = self.chat.get_history()
        self.chat = self.open_sdk(self.base).chats.create(model=model, config=self.config, history=said)

    def ask(self, prompt: str, image: bool = False) -> None:
        self.parts: list[Any] = [types.Part.from_text(text=prompt)]
        if image:
            self.parts.append(types.Part.from_bytes(data=base64.b64decode(PNG), mime_type="image/png"))

    def turn(self) -> Turn:
        chunks = (
            list(self.chat.send_message_stream(self.parts)) if self.stream else [self.chat.send_message(self.parts)]
        )
        contents = [one.content for chunk in chunks for one in chunk.candidates or ()]
        parts = [part for content in contents for part in (content.parts if content else None) or ()]
        found = [part.function_call for part in parts if part.function_call]
        calls = [Call(call.id or "", call.name or "", call.args or {}) for call in found]
        text = "".join(part.text or "" for part in parts if not part.thought)
        assert chunks[-1].candidates
        assert chunks[-1].candidates[0].finish_reason == types.FinishReason.STOP
        used = chunks[-1].usage_metadata
        usage = (used.prompt_token_count, used.candidates_token_count) if used else (None, None)
        return Turn(text, calls, "".join(part.text or "" for part in parts if part.thought), usage)

    def pieces(self) -> Iterator[str]:
        for chunk in self.chat.send_message_stream(self.parts):
            if chunk.text:
                yield chunk.text

    def answer(self, given: list[tuple[Call, Result]]) -> None:
        self.parts = []
        for call, result in given:
            image = types.FunctionResponsePart.from_bytes(data=base64.b64decode(PNG), mime_type="image/png")
            response = types.FunctionResponse(
                id=call.id or None,
                name=call.name,
                response={"error" if result.failed else "output": result.text},
                parts=[image] if result.image else None,
            )
            self.parts.append(types.Part(function_response=response))


# --- plain JSON, unified ---------------------------------------------------------------------------------------------


class Refused(Exception):
    """An error of the unified protocol."""

    def __init__(self, status: int, error: dict[str, Any], headers: Mapping[str, str]) -> None:
        super().__init__(error.get("message"))
        self.status, self.error, self.headers = status, error, headers


class Unified(Conversation):
    raises = (Refused,)

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.messages: list[Any] = []
        self.ask(self.task.prompt, self.task.image)

    def ask(self, prompt: str, image: bool = False) -> None:
        picture = {"type": "image", "mime": "image/png", "data": PNG}
        content: Any = [{"type": "text", "text": prompt}, *([picture] if image else ())]
        self.messages.append({"role": "user", "content": content})

    def turn(self) -> Turn:
        asked: dict[str, Any] = {"model": self.model, "messages": self.messages, "system": "Be brief."}
        asked["tools"] = [
            {"name": name, "description": about, "parameters": CITY} for name, about in self.task.tools.items()
        ]
        if self.stream:
            asked["stream"] = True
        if self.task.thinking:
            asked["reasoning"] = {"effort": "medium"}
        whole = self._send(asked)
        message = whole["message"]
        self.messages.append(message)
        calls = [Call(call["id"], call["name"], call["arguments"]) for call in message.get("tool_calls") or ()]
        assert whole["stop_reason"] == ("tool_calls" if calls else "stop"), whole
        content = message.get("content") or []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        said = {kind: "".join(p["text"] for p in parts if p["type"] == kind) for kind in ("text", "reasoning")}
        usage = whole["usage"] or {}
        return Turn(said["text"], calls, said["reasoning"], (usage.get("input_tokens"), usage.get("output_tokens")))

    def _open(self, asked: dict[str, Any]) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        address = urlsplit(self.base)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=PATIENCE)
        headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
        connection.request("POST", "/v1/unified", json.dumps(asked), headers)
        return connection, connection.getresponse()

    def _send(self, asked: dict[str, Any]) -> dict[str, Any]:
        connection, response = self._open(asked)
        data = response.read().decode()
        _losses.append(response.headers.get("x-toolwire-losses", ""))
        connection.close()
        if response.status >= 400:
            raise Refused(response.status, json.loads(data)["error"], dict(response.getheaders()))
        if not self.stream:
            whole: dict[str, Any] = json.loads(data)
            return whole
        events = [json.loads(frame.removeprefix("data:")) for frame in data.split("\n\n") if frame.startswith("data:")]
        last = events[-1]
        if last["type"] != "end":
            raise Refused(200, last.get("error") or {"message": "the stream was cut"}, {})
        ended: dict[str, Any] = last["response"]
        return ended

    def pieces(self) -> Iterator[str]:
        connection, response = self._open({"model": self.model, "messages": self.messages, "stream": True})
        try:
            for line in response:
                if line.startswith(b"data:") and (event := json.loads(line[5:]))["type"] == "text":
                    yield event["delta"]
        finally:
            response.close()
            connection.close()

    def answer(self, given: list[tuple[Call, Result]]) -> None:
        results = []
        for call, result in given:
            image = {"type": "image", "mime": "image/png", "data": PNG}
            content: Any = [{"type": "text", "text": result.text}, image] if result.image else result.text
            flag = {"is_error": True} if result.failed else {}
            results.append({"tool_call_id": call.id, "content": content, **flag})
        self.messages.append({"role": "tool", "results": results})


CLIENTS: dict[str, type[Conversation]] = {
    "openai-chat": Chat,
    "openai-responses": Responses,
    "anthropic": Messages,
    "gemini": Generate,
    "unified": Unified,
}
