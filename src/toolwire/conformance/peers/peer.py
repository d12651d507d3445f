"""What the player must know of a protocol: how its provider answers, and how its own client reads that answer.

The clients here add up streams as the official SDKs and the real agents do, and complain where those would fail.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module

from msgspec import Struct

from toolwire.core.json_values import Json, Object


class FoldedStream(Struct, frozen=True):
    """What a stream adds up to, in the shape of a whole answer, and what its client would stumble over."""

    body: Object
    violations: tuple[str, ...]
    minor_violations: tuple[str, ...] = ()
    """Those complaints that only the protocol's letter has: the SDKs and agents that were tried read over it."""


class PeerHttp(Struct, frozen=True, kw_only=True):
    """How a call looks from outside: what an SDK sends, and what a server of this protocol listens to."""

    base_path: str = ""
    """What stands behind the host in an SDK's base URL."""
    path: str
    """Where the SDK posts to; `{model}` is the model's name where it stands in the path."""
    stream_path: str = ""
    """The same for a stream, where that is another."""
    path_pattern: re.Pattern[str]
    """The end of a path at which the provider generates, with the group `model` where it stands there, and `stream`."""
    frames_query: str = ""
    """What the query must hold for a stream of frames; without it a stream is one array, element by element."""
    other_paths: Mapping[str, str] = {}
    """Where the SDK asks for something else than an answer, by what it is."""
    count_path: str = ""
    """The end of a path at which it counts tokens."""
    credential: tuple[str, str] = ("authorization", "Bearer {key}")
    headers: Mapping[str, str] = {}

    @property
    def has_model_in_body(self) -> bool:
        """Do the model and the wish for a stream stand in the body?"""
        return "{model}" not in self.path


class ProtocolPeer(Struct, frozen=True):
    name: str
    http: PeerHttp
    complete_answer: Callable[[Object, str], Object]
    """A whole answer with the dull fields filled in, for a model."""
    write_stream: Callable[[Object], list[str]]
    """A whole answer as the frames of a stream."""
    complete_frames: Callable[[list[Json], str], list[str]]
    """Frames as a case has them, with the dull fields filled in."""
    fold_stream: Callable[[list[SseFrame]], FoldedStream]
    history_turns: Callable[[Object], list[Json]]
    """What the client appends to its history after this answer."""
    uses_data_type: bool = False
    """Do clients go by the type in the data of a frame, whether or not a line before it says the same?"""


def split_text(text: str, count: int = 3) -> list[str]:
    """A text in a few pieces, as a stream brings it."""
    size = max(1, -(-len(text) // count))
    return [text[at : at + size] for at in range(0, len(text), size)]


class ScenarioTool(Struct, frozen=True):
    name: str
    description: str
    parameters: Object


class ModelAnswer(Struct, frozen=True):
    """What the model says, in no protocol yet."""

    text: str = ""
    calls: tuple[tuple[str, Object], ...] = ()
    """Names and arguments."""
    is_sealed: bool = False
    """Did it think before, and seal its thoughts?"""


class ToolScenario(Struct, frozen=True, kw_only=True):
    short_name: str
    """The protocol's name in the names of plays."""
    model: str
    sealing_model: str
    """The model that seals its thoughts."""
    turns_key: str
    """The key that holds the conversation."""
    provider_seals: bool
    """Can its provider seal thoughts, and does it want them back?"""
    has_seal_slot: bool
    """Do its clients have a place for seals?"""
    write_first_request: Callable[[str, Sequence[ScenarioTool]], Object]
    """A client's first request."""
    write_answer: Callable[[ModelAnswer], Object]
    """The provider's whole answer."""
    write_results: Callable[[Object, Sequence[str]], list[Json]]
    """What a client appends to its history for the results of an answer's calls."""
    expect_answer: Callable[[ModelAnswer], Json]
    """What a client must see of an answer."""
    expect_first_request: Callable[[str, Sequence[ScenarioTool]], Json]
    """What the provider must hear of a first request."""
    expect_later_request: Callable[[str, ModelAnswer, Sequence[str]], Json]
    """What it must hear of a later one: the question, the model's own turn, the results of its calls."""


def exactly_these(expected: list[Json], kind: Json) -> Json:
    """These elements in this order among others, and no more of their kind."""
    return {"$contains": expected, "$count": {"of": kind, "is": len(expected)}}


def distinct_id(name: str, before: Sequence[str]) -> Json:
    """An id that is there, and that no call before has."""
    taken: Json = {"$not": {"$either": [f"$same:{one}" for one in before]}} if before else {}
    return {"$matches": ".", "$same": name, **taken}


def grouping_options(things: list[Json]) -> list[list[list[Json]]]:
    """All at once, or one after the other. Whether a provider takes the second is for the strict checks to say."""
    return [[things], [[thing] for thing in things]]


def call_id_expectations(calls: Sequence[object], letter: str) -> list[tuple[str, Json]]:
    """For each call the name of its id, and what is expected of the id where it is met first."""
    names = [f"{letter}{number}" for number, _ in enumerate(calls)]
    return [(name, distinct_id(name, names[:number])) for number, name in enumerate(names)]


class SseFrame(Struct, frozen=True):
    """One event. `data` is parsed where it is JSON; `lines` are those that are neither event nor data."""

    event: str | None
    text: str
    data: Json
    other_lines: tuple[str, ...] = ()


def read_frames(text: str) -> list[SseFrame]:
    """Cut a whole stream into its frames; what stands after the last blank line is a frame too."""
    blocks = text.replace("\r\n", "\n").replace("\r", "\n").split("\n\n")
    return [frame for block in blocks if (frame := _read_frame(block)) is not None]


def _read_frame(block: str) -> SseFrame | None:
    event: str | None = None
    data: list[str] = []
    others: list[str] = []
    for line in block.split("\n"):
        if line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
        elif line.startswith("event:"):
            event = line[6:].strip()
        elif line:
            others.append(line)
    if not (data or others or event):
        return None
    text = "\n".join(data)
    return SseFrame(event, text, _parse_json(text), tuple(others))


def _parse_json(text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError:
        return text


def encode_json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def write_frame(event: str | None, data: Json) -> str:
    """A frame as it stands on the wire; data that is a text is written as it is."""
    body = data if isinstance(data, str) else encode_json(data)
    return f"event: {event}\ndata: {body}\n\n" if event else f"data: {body}\n\n"


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {"": bytes, "gzip": gzip.compress}

for _name in ("backports.zstd", "compression.zstd"):  # the second is in the standard library since Python 3.14
    with suppress(ImportError):
        COMPRESSORS["zstd"] = import_module(_name).compress
