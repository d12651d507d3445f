"""The cases: those reported, read from their files (see README.md), and the grid of all protocol pairs.

Variants, stream modes and inherited fields are expanded here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolwire_conformance import Json, Object
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import ModelAnswer, Peer, ScenarioTool


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    """What the client sends. `model` is for protocols whose body does not contain it (Gemini)."""

    protocol: str
    request: Json
    stream: bool = False
    model: str = ""
    asks: Literal["", "count", "compact"] = ""
    """Another operation than generating: counting tokens, or compacting the history."""
    encoding: Literal["", "gzip", "zstd"] = ""
    """How the body is compressed."""
    leaves: str = ""
    """The client disconnects when it has received this text."""


class ProviderExchange(Struct, frozen=True, forbid_unknown_fields=True):
    """One call to the provider: what it must contain, and what the provider answers."""

    expect: Json = UNSET
    status: int = 200
    headers: dict[str, str] = {}
    body: Json = UNSET
    sse: list[Json] | str | UnsetType = UNSET
    whole: bool = False
    """Send the answer as it is, without filling in usual fields."""
    bytewise: bool = False
    """Send the answer one byte at a time."""
    fails: Literal["", "said", "cut", "endless"] = ""
    """The stream fails: its frames say so, the connection breaks after the last frame, or the last frame is repeated
    until the gateway disconnects. Retries get the same answer."""
    optional: bool = False
    """The gateway may refuse the client instead; then the case ends."""


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    protocol: str
    exchanges: tuple[ProviderExchange, ...]
    lenient: tuple[str, ...] = ()
    """Strict checks that do not apply to this provider: parts of their messages."""


class ClientExpectation(Struct, frozen=True, forbid_unknown_fields=True):
    """What the client must receive. `body` is the whole answer, or what its stream adds up to."""

    status: Json = 200
    headers: Json = UNSET
    body: Json = UNSET
    events: Json = UNSET
    text: Json = UNSET
    after: dict[str, Json] = {}
    """By the number of a provider's frame: the text that the client must have received after that frame."""


class CaseTurn(Struct, frozen=True, forbid_unknown_fields=True):
    client: Client
    provider: Provider
    client_sees: ClientExpectation = ClientExpectation()
    losses: list[Json] | None = None
    """Losses that must be reported: a code, or fields of a loss. An empty list means that nothing may be lost."""


class Case(Struct, frozen=True):
    """One case in one variant and one stream mode."""

    id: str
    number: int
    title: str
    source: tuple[str, ...]
    turns: tuple[CaseTurn, ...]
    out_of_reach: str = ""
    configured: bool = False
    """Does it need a gateway that is configured for this provider?"""


class BadCase(Exception):
    """A case file with an invalid format."""


FIRST_RECORDED = 9000
"""The number of the first case that was recorded, and not reported."""
HEAD_FIELDS = frozenset({"id", "title", "source", "note", "variants", "out_of_reach", "configured", "settings"})
"""`settings` are those of who recorded it."""
BODY_FIELDS = frozenset({"client", "provider", "client_sees", "losses", "then", "stream"})


def read_case(data: Object) -> list[Case]:
    """The cases of a file: each variant in each stream mode."""
    if unknown := data.keys() - HEAD_FIELDS - BODY_FIELDS:
        raise BadCase(f"case {data.get('id')}: unknown fields {sorted(unknown)}")
    base = {key: data[key] for key in (*BODY_FIELDS, "out_of_reach", "configured") if key in data}
    cases: list[Case] = []
    for variant in data.get("variants") or [{}]:
        for label, body in _stream_modes(_merge_variant(base, variant)):
            name_parts = [f"{data['id']:03}", *filter(None, (variant.get("name", ""), label))]
            cases.append(_read_variant(":".join(name_parts), data, body))
    return cases


def _read_variant(id: str, data: Object, body: Object) -> Case:
    try:
        turns = tuple(_read_turns(body)) if "client" in body else ()
    except (msgspec.ValidationError, KeyError) as error:
        raise BadCase(f"case {id}: {error}") from None
    about = {key: body[key] for key in ("out_of_reach", "configured") if key in body}
    return Case(id, data["id"], data["title"], tuple(data["source"]), turns, **about)


def _merge_variant(base: Object, variant: Object) -> Object:
    """The base with the variant's fields: client and provider are merged key by key, others are replaced."""
    out = {**base, **{key: value for key, value in variant.items() if key != "name"}}
    for side in ("client", "provider"):
        if side in base and side in variant:
            out[side] = {**base[side], **variant[side]}
    return out


def _stream_modes(body: Object) -> Iterator[tuple[str, Object]]:
    stream: bool | Literal["both"] = body.get("client", {}).get("stream", False)
    if stream != "both":
        yield "", body
        return
    for mode, label in ((False, "whole"), (True, "stream")):
        yield label, {**body, "client": {**body["client"], "stream": mode}}


def _read_turns(body: Object) -> Iterator[CaseTurn]:
    """All turns; a later turn inherits the fields that it does not have, key by key."""
    client: Object = {}
    provider: Object = {}
    for turn in (body, *body.get("then", ())):
        changes = turn.get("client", {})
        has_request = "request" in changes
        request = {**client.get("request", {}), **changes["request"]} if has_request else client["request"]
        client = {**client, **changes, "request": request}
        provider = {**provider, **turn.get("provider", {})}
        fields = {key: turn[key] for key in ("client_sees", "losses") if key in turn}
        yield msgspec.convert({"client": client, "provider": provider, **fields}, CaseTurn)


def read_case_files() -> Iterator[tuple[str, Object]]:
    """All case files, with their names."""
    folder = files("toolwire_conformance") / "cases"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".json"):
            yield file.name, json.loads(file.read_text("utf-8"))


def read_cases() -> list[Case]:
    """All cases of all files."""
    return [case for _, data in read_case_files() for case in read_case(data)]


def read_recorded_cases(folder: Path) -> list[Case]:
    """The recorded exchanges of a folder, numbered in the order of their files. Raises BadCase."""
    cases: list[Case] = []
    for number, path in enumerate(sorted(folder.glob("*.json")), FIRST_RECORDED):
        try:
            data = msgspec.json.decode(path.read_bytes(), type=Object)
            cases += read_case({**data, "id": number, "title": f"{path.stem}: {data['title']}"})
        except (msgspec.DecodeError, KeyError, OSError) as error:
            raise BadCase(f"{path}: {error}") from None
    return cases


# --- the grid -------------------------------------------------------------------------------------------------------


PROMPT = "What is the weather in Málaga and in Rome?"
CITY = {"city": {"type": "string"}}
CITY_AND_DAYS = {"type": "object", "properties": {**CITY, "days": {"type": "integer"}}, "required": ["city", "days"]}
TOOLS = (
    ScenarioTool("get_weather", "The weather forecast for a city.", CITY_AND_DAYS),
    ScenarioTool("get_time", "The local time in a city.", {"type": "object", "properties": CITY, "required": ["city"]}),
)
FIRST_CALL = ("get_weather", {"city": "Málaga", "days": 3})
SECOND_CALL = ("get_weather", {"city": "Rome", "days": 1})
RESULT_TEXTS = ("27 degrees, light wind", "19 degrees, some rain")
CALLS = ModelAnswer("I will look.", (FIRST_CALL, SECOND_CALL))
FINAL_TEXT = "Málaga: 27 degrees. Rome: 19 degrees."
NO_SEAL_SLOT = "clients of this protocol cannot keep a seal: only a gateway that stores it can return it"


class GridKind(Struct, frozen=True):
    """One conversation that is played on every pair of protocols, whole and streamed."""

    name: str
    title: str
    answer: ModelAnswer
    tools: tuple[ScenarioTool, ...] = TOOLS
    second_request: str = ""
    """A second request with results: `own`, written by the client, or `echo`, with what the gateway answered."""


GRID_KINDS = (
    GridKind("text", "Text", ModelAnswer(FINAL_TEXT), ()),
    GridKind("call", "One call", ModelAnswer(calls=(FIRST_CALL,))),
    GridKind("two-calls", "Text and two calls of the same tool", CALLS),
    GridKind("second-turn", "A history with two calls and their results", CALLS, second_request="own"),
    GridKind("echo", "The gateway's own answer as history", CALLS, second_request="echo"),
    GridKind(
        "sealed-echo",
        "The same with sealed reasoning",
        ModelAnswer(calls=CALLS.calls, is_sealed=True),
        second_request="echo",
    ),
)


COMPARED = tuple(peer for peer in PEERS.values() if peer.is_compared)


def make_grid_cases(peers: Sequence[Peer] = COMPARED) -> list[Case]:
    """The cases of the grid, by client, provider, kind and mode."""
    return [
        _grid_case(kind, ours, theirs, stream)
        for ours, theirs, kind, stream in product(peers, peers, GRID_KINDS, (False, True))
        if theirs.provider_seals or not kind.answer.is_sealed
    ]


def _grid_case(kind: GridKind, ours: Peer, theirs: Peer, stream: bool) -> Case:
    name = f"grid:{ours.short_name}>{theirs.short_name}:{kind.name}" + (":stream" if stream else "")
    kept = NO_SEAL_SLOT if kind.answer.is_sealed and not ours.has_seal_slot else ""
    return Case(name, 0, kind.title, (), tuple(_grid_turns(kind, ours, theirs, stream)), kept)


def _grid_turns(kind: GridKind, ours: Peer, theirs: Peer, stream: bool) -> Iterator[CaseTurn]:
    model = theirs.sealing_model if kind.answer.is_sealed else theirs.model
    named = {"model": model} if ours.http.has_model_in_body else {}
    request = named | ours.write_first_request(PROMPT, kind.tools)

    def make_turn(request: Object, expected: Json, answer: ModelAnswer) -> CaseTurn:
        exchange = ProviderExchange(expect=expected, body=theirs.write_answer(answer))
        seen = ClientExpectation(body=ours.expect_answer(answer))
        return CaseTurn(Client(ours.name, request, stream, model), Provider(theirs.name, (exchange,)), seen)

    if kind.second_request != "own":
        yield make_turn(request, theirs.expect_first_request(PROMPT, kind.tools), kind.answer)
    if kind.second_request:
        later = {**request, ours.turns_key: [*request[ours.turns_key], *_follow_up_history(kind, ours)]}
        yield make_turn(later, theirs.expect_later_request(PROMPT, kind.answer, RESULT_TEXTS), ModelAnswer(FINAL_TEXT))


def _follow_up_history(kind: GridKind, ours: Peer) -> list[Json]:
    """The model's turn and the results, as the client sends them."""
    if kind.second_request == "echo":
        return [{"$echo": 0}, {"$results": 0, "of": list(RESULT_TEXTS)}]
    answer = ours.complete_answer(ours.write_answer(kind.answer), ours.model)
    return [*ours.history_turns(answer), *ours.write_results(answer, RESULT_TEXTS)]


def load_all_cases(peers: Sequence[Peer] = COMPARED) -> list[Case]:
    return [*make_grid_cases(peers), *read_cases()]
