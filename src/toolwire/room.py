"""What a room is: the same few doors in every protocol, and the rules that others must keep toward it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

from toolwire.events import Event
from toolwire.ir import NOTHING, Failure, Request, Response
from toolwire.loss import Ledger
from toolwire.schema import Converted
from toolwire.wire import Json, Object


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What this protocol demands of a request; the steps in `translate` read these, never a room's name."""

    name_pattern: re.Pattern[str]
    """Legal tool names, the whole name."""
    name_limit: int = 64
    id_pattern: re.Pattern[str] = re.compile(r"[A-Za-z0-9_-]+")
    id_limit: int = 64
    tool_kinds: frozenset[str] = frozenset({"function"})
    """Kinds of tools, calls and results that it knows besides its own; all others are wrapped as functions."""
    namespaces: bool = False
    tools_in_turns: bool = False
    """Can tools be added in the middle of the conversation?"""
    results: Literal["turns", "user"] = "turns"
    """Each result in a turn of its own (role "tool"), or all of a batch first in one user turn."""
    joins: frozenset[str] = frozenset()
    """Roles whose neighbouring turns must be one."""
    starts_with_user: bool = False
    empty_text: bool = True
    """Are empty or blank text parts accepted?"""
    system: Literal["top", "turns", "both"] = "turns"
    """Instructions apart from the turns, among them, or either."""
    mid_system: Literal["keep", "user", "model"] = "keep"
    """A system turn in the middle: kept, turned into user text, or decided by `mid_system_models`."""
    mid_system_models: re.Pattern[str] = re.compile(r"(?!)")
    result_media: frozenset[str] = frozenset()
    """Kinds of media that a result may hold."""
    result_error: Literal["flag", "text"] = "text"
    """Results have an error flag, or the text must say it."""
    seals: frozenset[str] = frozenset()
    """Parts that have a slot for a seal: reasoning, call, text."""
    signed_reasoning: bool = False
    """Is thinking without a seal refused?"""
    reasoning_leads: bool = False
    """Must a sealed piece of reasoning be followed by what it led to?"""
    phases: bool = False
    """Do turns have a phase?"""
    json_word: bool = False
    """Must the word stand somewhere in the conversation before JSON can be asked for without a schema?"""
    dialect: Callable[[Json, str], Converted] | None = None
    """The dialect that the schemas of tools must be in, by the model's name, where parameters may be renamed."""
    fills_orphans: bool = True
    """Must every call have a result?"""
    call_finishes: frozenset[str] = frozenset({"calls"})
    """Endings that a strict reader accepts for an answer with calls."""
    turns_key: str = "messages"
    """The key of the body that holds the conversation."""


class Sent(msgspec.Struct, frozen=True):
    """An error as it goes out: status, body and headers."""

    status: int
    body: Json
    headers: Mapping[str, str] = NOTHING


class Context(msgspec.Struct, frozen=True):
    """What a writer of answers may know: the client's request, and a clock and a seed that are passed in."""

    request: Request | None = None
    now: int = 0
    seed: str = ""


class StreamReader(Protocol):
    """Bytes of one answer in, events out; `close` at the end of input. Never raises for what the peer sends."""

    def feed(self, data: bytes) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class StreamWriter(Protocol):
    """Events in, bytes out; `close` gives what is still owed."""

    def write(self, event: Event) -> bytes: ...

    def close(self) -> bytes: ...


class Http(msgspec.Struct, frozen=True, kw_only=True):
    """How a call of this protocol looks from outside."""

    path: Callable[[str, bool], str]
    """The path of a call, from the model's name and whether it streams."""
    model_in_body: bool = True
    stream_in_body: bool = True
    stream_type: str = "text/event-stream"


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """One protocol."""

    name: str
    rules: Rules
    http: Http
    read_request: Callable[[Object], Request]
    write_request: Callable[[Request, Ledger], Object]
    read_response: Callable[[Object], Response]
    write_response: Callable[[Response, Ledger, Context], Object]
    read_error: Callable[[Json, int, Mapping[str, str]], Failure]
    write_error: Callable[[Failure], Sent]
    stream_reader: Callable[[], StreamReader]
    stream_writer: Callable[[Ledger, Context], StreamWriter]
