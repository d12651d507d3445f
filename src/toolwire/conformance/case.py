"""A case as data, read from its file: variants, stream modes and inherited fields are spelled out here, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from toolwire.core.json_values import Json, Object


class Client(Struct, frozen=True, forbid_unknown_fields=True):
    """What the client sends. `model` is for wires that keep the model outside the body."""

    protocol: str
    request: Json
    stream: bool = False
    model: str = ""
    asks: Literal["", "count", "compact"] = ""
    """For something else than an answer: how many tokens this would be, or a shorter history."""
    encoding: Literal["", "gzip", "zstd"] = ""
    """How the body is packed."""
    leaves: str = ""
    """As soon as this piece of the answer has come, the client hangs up."""


class ProviderExchange(Struct, frozen=True, forbid_unknown_fields=True):
    """One call that reaches the provider: what it must hold, and what the provider answers."""

    expect: Json = UNSET
    status: int = 200
    headers: dict[str, str] = {}
    body: Json = UNSET
    sse: list[Json] | str | UnsetType = UNSET
    whole: bool = False
    """The answer stands as it is, nothing is completed."""
    bytewise: bool = False
    """The answer comes one byte at a time."""
    fails: Literal["", "said", "cut", "endless"] = ""
    """The stream does not succeed: its frames say so, the connection breaks behind the last, or the last comes again
    and again until the gateway hangs up. Whoever asks once more is given the same."""
    optional: bool = False
    """The client may be refused instead; then nothing follows."""


class Provider(Struct, frozen=True, forbid_unknown_fields=True):
    protocol: str
    exchanges: tuple[ProviderExchange, ...]
    lenient: tuple[str, ...] = ()
    """Complaints that this provider does not make: pieces of their wording."""


class ClientExpectation(Struct, frozen=True, forbid_unknown_fields=True):
    """What the client must see. `body` is the whole answer, or what its stream adds up to."""

    status: Json = 200
    headers: Json = UNSET
    body: Json = UNSET
    events: Json = UNSET
    text: Json = UNSET
    after: dict[str, Json] = {}
    """By the number of a provider's frame: what the client has received once that frame was sent, as text."""


class CaseTurn(Struct, frozen=True, forbid_unknown_fields=True):
    client: Client
    provider: Provider
    client_sees: ClientExpectation = ClientExpectation()
    losses: list[Json] | None = None
    """Each must be reported: a code, or fields of a loss. An empty list demands that nothing is lost."""


class Case(Struct, frozen=True):
    """One case in one variant and one stream mode."""

    id: str
    number: int
    title: str
    source: tuple[str, ...]
    turns: tuple[CaseTurn, ...]
    out_of_reach: str = ""
    configured: bool = False
    """Does it need a gateway whose configuration says something about this provider?"""


class BadCase(Exception):
    """A case file that does not keep to the format."""


HEAD_FIELDS = frozenset({"id", "title", "source", "note", "variants", "out_of_reach", "configured"})
BODY_FIELDS = frozenset({"client", "provider", "client_sees", "losses", "then", "stream"})


def read_case(data: Object) -> list[Case]:
    """All that a file asks for: each variant, in each stream mode."""
    unknown = data.keys() - HEAD_FIELDS - BODY_FIELDS
    if unknown:
        raise BadCase(f"case {data.get('id')}: unknown fields {sorted(unknown)}")
    base = {key: data[key] for key in (*BODY_FIELDS, "out_of_reach", "configured") if key in data}
    played: list[Case] = []
    for variant in data.get("variants") or [{}]:
        name = variant.get("name", "")
        for label, body in _stream_modes(_merge_variant(base, variant)):
            name_parts = [f"{data['id']:03}", *filter(None, (name, label))]
            played.append(_read_variant(":".join(name_parts), data, body))
    return played


def _read_variant(id: str, data: Object, body: Object) -> Case:
    try:
        turns = tuple(_read_turns(body)) if "client" in body else ()
    except (msgspec.ValidationError, KeyError) as error:
        raise BadCase(f"case {id}: {error}") from None
    about = {key: body[key] for key in ("out_of_reach", "configured") if key in body}
    return Case(id, data["id"], data["title"], tuple(data["source"]), turns, **about)


def _merge_variant(base: Object, variant: Object) -> Object:
    """The variant over the base: client and provider key by key, the rest as a whole."""
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
    """The first turn and those that follow; a follower takes over what it does not say itself, key by key."""
    client: Object = {}
    provider: Object = {}
    for turn in (body, *body.get("then", ())):
        said = turn.get("client", {})
        request = {**client.get("request", {}), **said.get("request", {})} if "request" in said else client["request"]
        client = {**client, **said, "request": request}
        provider = {**provider, **turn.get("provider", {})}
        fields = {key: turn[key] for key in ("client_sees", "losses") if key in turn}
        yield msgspec.convert({"client": client, "provider": provider, **fields}, CaseTurn)


def read_case_files() -> Iterator[tuple[str, Object]]:
    """Every case file of the package, by name."""
    folder = files("toolwire.conformance") / "cases"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if file.name.endswith(".json"):
            yield file.name, json.loads(file.read_text("utf-8"))


def read_cases() -> list[Case]:
    """Every case of the package, spelled out."""
    return [case for _, data in read_case_files() for case in read_case(data)]
