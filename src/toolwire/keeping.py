"""What clients of a protocol may leave with whoever serves them: the doors by which a room shapes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

from msgspec import Raw, Struct

from toolwire.core.ir import Failure
from toolwire.core.json_values import Json, Object

_NONE = Raw(b"")


class Peek(Struct, frozen=True, gc=False):
    """The few keys of a request that routing asks for; the rest is skipped, not built."""

    model: str = ""
    stream: bool | None = None
    tools: Raw = _NONE


class Wants(Struct, frozen=True, kw_only=True):
    """What a request wants of the one who serves it besides an answer."""

    store: bool = False
    """Shall the answer be kept?"""
    previous: str = ""
    """The kept answer that it goes on from."""
    conversation: str = ""
    """The kept conversation that it belongs to."""
    references: tuple[str, ...] = ()
    """Kept items that stand in it by their ids only."""
    background: bool = False
    """Shall it be answered later, and asked for again?"""
    summary: bool = False
    """Is a summary of the conversation wanted instead of an answer?"""


class Errand(Struct, frozen=True, kw_only=True):
    """A request about something that is kept: what to do with which."""

    verb: Literal[
        "response", "response-delete", "response-cancel", "response-items", "compact",
        "conversation-create", "conversation", "conversation-update", "conversation-delete",
        "items", "items-add", "item", "item-delete",
    ]  # fmt: skip
    id: str = ""
    item: str = ""


class Page(Struct, frozen=True, kw_only=True):
    """Which part of a list is wanted."""

    after: str = ""
    limit: int = 20
    descending: bool = True


class Tap(Protocol):
    """Looks at a client's own stream on its way out. The last event is held back until what it tells is kept."""

    response: Object | None
    """The whole answer, as the last event tells it; None before."""

    def feed(self, data: bytes) -> bytes:
        """What can go out at once: whole frames."""

    def close(self) -> bytes:
        """The end of the stream: what was held back because its frame seemed not to be whole. The last event still
        waits."""

    def release(self, changes: Mapping[str, Json]) -> bytes:
        """The last event and what came behind it, its answer with these keys changed."""


class Keeping(Struct, frozen=True, kw_only=True):
    """What clients of this protocol may leave with whoever serves them, in its shapes: answers to go on from,
    conversations, answers that are made in the background, summaries. Bodies are JSON objects of this protocol."""

    peek: Callable[[bytes], Peek | None]
    """The look that routing takes at a body, and in the same pass at what `stateless` asks for. None where not all of
    that is as it should be, so that others look."""
    stateless: Callable[[Peek], bool]
    """Does a body that was looked at so surely want nothing kept and refer to nothing? May say False too often."""
    errand: Callable[[str, str], Errand | None]
    """What a request with this method to this path is about; None when it is none of these."""
    wants: Callable[[Object], Wants | Failure]
    items: Callable[[Object, str], list[Object]]
    """The input of a request as items, each with an id; ids that are missing are made from the given seed."""
    expanded: Callable[[Object, list[Object], Mapping[str, Object]], Object]
    """A request with these items before its own, those that it only refers to put in (by id), and without references
    to anything kept. For the first turn of a conversation too: so it looks alike in every later one."""
    referred: Callable[[list[Object]], tuple[str, ...] | Failure]
    """The ids of items that stand among these by their ids only."""
    resolved: Callable[[list[Object], Mapping[str, Object]], list[Object]]
    """Items with those put in that they only refer to, by id."""
    read_page: Callable[[Mapping[str, str]], Page | Failure]
    """From a query."""
    write_page: Callable[[list[Object], bool], Object]
    """A list of items; and whether there are more."""
    write_item: Callable[[Object], Object]
    """One item, as a list shows it."""
    write_deleted: Callable[[str, str], Object]
    """That a thing of this kind ("response", "conversation") with this id is gone."""
    read_conversation: Callable[[Object], tuple[list[Object], Json] | Failure]
    """The items and the metadata of a request that makes one; ids are not there yet."""
    read_metadata: Callable[[Object], Json | Failure]
    read_added: Callable[[Object], list[Object] | Failure]
    """The items of a request that adds some."""
    write_conversation: Callable[[str, int, Json], Object]
    """From its id, when it was made, and its metadata."""
    renewed: Callable[[list[Object], str], list[Object]]
    """Items as a conversation takes them: each with an id of its own, whatever it was called elsewhere."""
    named: Callable[[list[Object], str], list[Object]]
    """Items with an id each, of their kind; ids that are missing are made from the given seed."""
    new: Callable[[str, str], str]
    """An id for a thing of this kind ("response", "conversation"), made from the given seed."""
    begun: Callable[[Object, int, str], Object]
    """An answer that is not there yet: from the request, the time, and its status. `told` gives it its id."""
    ended: Callable[[Object, str, Failure | None], Object]
    """An answer that will never be there: with this status, and why."""
    told: Callable[[Wants, str, int], dict[str, Json]]
    """What an answer says of what its request wanted, in keys of its own: what it goes on from, its conversation; and
    the id and the time, where it was given them beforehand because it is made in the background ("" where not)."""
    unkept: Mapping[str, Json]
    """What an answer says that could not be kept."""
    name: Callable[[Object], str]
    """The id of an answer; "" when it has none."""
    status: Callable[[Object], str]
    """The status of an answer; one that is not there yet is "queued" or "in_progress"."""
    output: Callable[[Object], list[Object]]
    """The items of an answer."""
    tap: Callable[[Mapping[str, Json]], Tap]
    """For a stream whose answers get these keys changed wherever they are told."""
    frames: Callable[[Object], bytes]
    """A whole answer as a stream."""
    last: Callable[[Object, int], bytes]
    """The last event of a stream that tells this answer, with this number."""
    numbered: Callable[[bytes], list[tuple[int, bytes]]]
    """Whole frames of a stream, each with its number."""
    renumbered: Callable[[bytes, int], list[tuple[int, bytes]]]
    """The same for frames as they come from a provider, which get numbers from this one on."""
    summons: Callable[[Object, list[Object]], Object]
    """The request that asks the model for a summary of a conversation (these items), from the one that wants it."""
    summarised: Callable[[Object, Object, list[Object], str, int], Object | Failure]
    """What the client of `compact` gets: from its request, the model's answer, the items that were summarised, a seed
    for ids, and the time."""
    summary: Callable[[Object, Object, str, int], Object | Failure]
    """The same for a request that asked for a summary in its input: an answer with the summary as its output."""
    compact_path: str = ""
    """Where a provider of this protocol is asked for a summary itself."""
    not_found: Callable[[str, str], Failure] = lambda kind, id: Failure("not_found", f"there is no {kind} `{id}`", 404)
    """What is said of a thing ("response", "previous", "conversation", "item") that is not there, as its
    vendor says it."""
