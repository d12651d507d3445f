"""What the suite knows about a protocol: how its provider answers, and how its clients read the answer.

The clients here add up streams as the official SDKs and the real agents do, and report what those would fail on. The
SSE reader is separate from the library's own on purpose: it keeps what the library ignores, such as comments.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from typing import ClassVar, Protocol

from msgspec import Struct

from toolwire_conformance import Json, Object
from toolwire_conformance.peers.checks import RequestCheck

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress}
"""How a client can compress a request body, by content encoding."""
for _name in ("backports.zstd", "compression.zstd"):  # the second is in the standard library since Python 3.14
    with suppress(ImportError):
        COMPRESSORS["zstd"] = import_module(_name).compress


class TextDecoder(Protocol):
    """Bytes of a stream in, text out."""

    def decode(self, data: bytes) -> str: ...


class Framing(Struct, frozen=True):
    """How streams are sent. Cases, and all that compares them, have text."""

    content_type: str = "text/event-stream"
    encode: Callable[[str], bytes] = str.encode
    make_decoder: Callable[[], TextDecoder] = lambda: codecs.getincrementaldecoder("utf-8")("replace")


SSE = Framing()


class PeerHttp(Struct, frozen=True, kw_only=True):
    """What an SDK of this protocol sends, and what a server of it accepts."""

    base_path: str = ""
    """The path in an SDK's base URL."""
    path: str
    """Where the SDK posts to; `{model}` stands for the model's name if the path contains it."""
    stream_path: str = ""
    """Where it posts to for a stream, if that is another path."""
    path_pattern: re.Pattern[str]
    """The end of a path that generates, with the groups `model` and `stream` if the path tells them."""
    frames_query: str = ""
    """What the query must contain for a stream of SSE frames; otherwise a stream is one JSON array."""
    other_paths: Mapping[str, str] = {}
    """Where the SDK posts other operations, such as counting tokens."""
    count_path: str = ""
    """The end of a path that counts tokens."""
    credential: tuple[str, str] = ("authorization", "Bearer {key}")
    headers: Mapping[str, str] = {}
    framing: Framing = SSE

    @property
    def has_model_in_body(self) -> bool:
        """Does the body contain the model and the stream flag?"""
        return "{model}" not in self.path


# --- server-sent events ---------------------------------------------------------------------------------------------


class SseFrame(Struct, frozen=True):
    """One event. `data` is parsed if it is JSON; `other_lines` are neither event nor data."""

    event: str | None
    text: str
    data: Json
    other_lines: tuple[str, ...] = ()


def read_frames(text: str) -> list[SseFrame]:
    """Split a stream into its frames; an unfinished last frame counts too."""
    blocks = text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
    return [frame for block in blocks if (frame := _read_frame(block)) is not None]


def _read_frame(block: str) -> SseFrame | None:
    lines = [line for line in block.split("\n") if line]
    data = [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]
    events = [line[6:].strip() for line in lines if line.startswith("event:")]
    others = tuple(line for line in lines if not line.startswith(("data:", "event:")))
    if not (data or others or any(events[-1:])):
        return None
    text = "\n".join(data)
    try:
        parsed = json.loads(text)
    except ValueError:
        parsed = text
    return SseFrame(events[-1] if events else None, text, parsed, others)


def encode_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_frame(event: str | None, data: Json) -> str:
    """Write a frame; data that is a string is written as it is."""
    body = data if isinstance(data, str) else encode_json(data)
    return f"event: {event}\ndata: {body}\n\n" if event else f"data: {body}\n\n"


def split_text(text: str) -> list[str]:
    """Split a text into three deltas."""
    size = max(1, -(-len(text) // 3))
    return [text[at : at + size] for at in range(0, len(text), size)]


# --- the peer -------------------------------------------------------------------------------------------------------


class FoldedStream(Struct, frozen=True):
    """What a stream adds up to, in the shape of a whole answer, and what is wrong with it for a client."""

    body: Object
    violations: tuple[str, ...]
    minor_violations: tuple[str, ...] = ()
    """The violations that the tested SDKs and agents ignore."""


def folded_stream(body: Object, violations: Sequence[str], minor: Sequence[str]) -> FoldedStream:
    return FoldedStream(body, (*violations, *minor), tuple(minor))


class ScenarioTool(Struct, frozen=True):
    name: str
    description: str
    parameters: Object


class ModelAnswer(Struct, frozen=True):
    """A model's answer, independent of any protocol."""

    text: str = ""
    calls: tuple[tuple[str, Object], ...] = ()
    """Names and arguments."""
    is_sealed: bool = False
    """Does it contain reasoning with a signature, or encrypted reasoning?"""


class Peer(ABC):
    """A provider and a client of one protocol, and one conversation with tools as they would write it."""

    name: ClassVar[str]
    short_name: ClassVar[str]
    """The protocol's name in case ids."""
    http: ClassVar[PeerHttp]
    model: ClassVar[str]
    sealing_model: ClassVar[str]
    """A model that seals its reasoning."""
    turns_key: ClassVar[str]
    """The key of a request that contains the conversation."""
    checks: ClassVar[tuple[RequestCheck, ...]]
    """What its provider refuses; the rules are those of the vendor's own service."""
    provider_seals: ClassVar[bool] = True
    """Does its provider seal reasoning, and require it back?"""
    has_seal_slot: ClassVar[bool] = True
    """Can its clients keep and return seals?"""
    is_compared: ClassVar[bool] = True
    """Are its pairs in the grid that other gateways are compared by?"""
    uses_data_type: ClassVar[bool] = False
    """Do clients use the type in a frame's data, and ignore its event line?"""

    def normalise_body(self, body: Json) -> Json:
        """A request with the field names that expectations use: Gemini accepts snake_case too."""
        return body

    @abstractmethod
    def complete_answer(self, body: Object, model: str) -> Object:
        """Fill in the usual fields of a whole answer."""

    @abstractmethod
    def write_stream(self, body: Object) -> list[str]:
        """A whole answer as the frames of a stream."""

    def complete_frames(self, frames: list[Json], model: str) -> list[str]:
        """The frames of a case, with their usual fields filled in; text is written as it is."""
        return [
            self.complete_frame(frame, model, frames[:number]) if isinstance(frame, dict) else write_frame(None, frame)
            for number, frame in enumerate(frames)
        ]

    @abstractmethod
    def complete_frame(self, frame: Object, model: str, earlier: list[Json]) -> str:
        """One of them, after those that are earlier in the stream."""

    @abstractmethod
    def fold_stream(self, frames: list[SseFrame]) -> FoldedStream:
        """Read a stream as a client does."""

    @abstractmethod
    def history_turns(self, body: Object) -> list[Json]:
        """What the client appends to its history after this answer."""

    # --- a conversation with tools ----------------------------------------------------------------------------------

    def write_first_request(self, prompt: str, tools: Sequence[ScenarioTool]) -> Object:
        return self.write_prompt(prompt) | ({"tools": self.write_tools(tools)} if tools else {})

    @abstractmethod
    def write_prompt(self, prompt: str) -> Object: ...

    @abstractmethod
    def write_tools(self, tools: Sequence[ScenarioTool]) -> list[Json]: ...

    @abstractmethod
    def write_answer(self, answer: ModelAnswer) -> Object:
        """The provider's whole answer."""

    @abstractmethod
    def write_results(self, body: Object, texts: Sequence[str]) -> list[Json]:
        """What a client appends to its history for the results of an answer's calls."""

    @abstractmethod
    def expect_answer(self, answer: ModelAnswer) -> Json:
        """What a client must see of an answer."""

    def expect_first_request(self, prompt: str, tools: Sequence[ScenarioTool]) -> Json:
        """What the provider must receive as the first request."""
        return {self.turns_key: self.expect_first_turns(prompt)} | (
            {"tools": self.expect_tools(tools)} if tools else {}
        )

    def expect_later_request(self, prompt: str, answer: ModelAnswer, texts: Sequence[str]) -> Json:
        """What it must receive as a later request: the prompt, the model's turn, and the results of its calls."""
        said = self.expect_model_turns(answer, self.expect_calls(answer, "p"))
        results = [
            self.expect_result(call[0], f"$same:{id}", text)
            for call, (id, _), text in zip(answer.calls, call_id_expectations(answer.calls, "p"), texts, strict=True)
        ]
        options = [
            {"$contains": [self.expect_prompt(prompt), *turns]} for turns in self.answered_turn_options(said, results)
        ]
        expected = {"$either": options} if len(options) > 1 else options[0]
        return {self.turns_key: expected | ({"$within": answer.text} if answer.text else {})}

    def expect_first_turns(self, prompt: str) -> Json:
        return {"$contains": [self.expect_prompt(prompt)]}

    def expect_prompt(self, prompt: str) -> Json:
        return {"role": "user", "content": {"$text": {"$contains": prompt}}}

    def expect_tools(self, tools: Sequence[ScenarioTool]) -> Json:
        return [self.expect_tool(tool) for tool in tools]

    @abstractmethod
    def expect_tool(self, tool: ScenarioTool) -> Json: ...

    def expect_calls(self, answer: ModelAnswer, letter: str) -> list[Json]:
        ids = call_id_expectations(answer.calls, letter)
        return [self.expect_call(*call, id) for call, (_, id) in zip(answer.calls, ids, strict=True)]

    @abstractmethod
    def expect_call(self, name: str, arguments: Object, id: Json) -> Json: ...

    @abstractmethod
    def expect_model_turns(self, answer: ModelAnswer, calls: list[Json]) -> list[Json]: ...

    @abstractmethod
    def expect_result(self, name: str, id: str, text: str) -> Json: ...

    def answered_turn_options(self, said: list[Json], results: list[Json]) -> list[list[Json]]:
        """The ways in which results may follow what the model said."""
        return [[*said, *turns] for turns in self.result_turn_options(results)]

    def result_turn_options(self, results: list[Json]) -> list[list[Json]]:
        """The ways in which results may be spread over turns; here each is a turn of its own."""
        return [results]


def expect_properties(tool: ScenarioTool) -> Object:
    return {"properties": dict.fromkeys(tool.parameters["properties"], "$any")}


def exactly_these(expected: list[Json], kind: Json, text: str = "") -> Object:
    """These elements in this order among others, no more of their kind, and the text, if any, in the others."""
    count = {"of": kind, "is": len(expected)}
    return {"$contains": expected, "$count": count} | ({"$text": text} if text else {})


def grouping_options(items: list[Json]) -> list[list[list[Json]]]:
    """All in one turn, or one per turn. The strict checks decide whether a provider accepts the second."""
    return [[items], [[item] for item in items]]


def call_id_expectations(calls: Sequence[object], letter: str) -> list[tuple[str, Json]]:
    """For each call the binding of its id, and the expectation that binds it: an id that no other call has."""
    expected: list[tuple[str, Json]] = []
    for number, _ in enumerate(calls):
        taken = [f"$same:{name}" for name, _ in expected]
        others = {"$not": {"$either": taken}} if taken else {}
        expected.append((f"{letter}{number}", {"$matches": ".", "$same": f"{letter}{number}", **others}))
    return expected
