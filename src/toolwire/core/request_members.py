"""The names of the members of a protocol's requests. A gateway that lets a client's own bytes pass decides by these
names, so it must know every name that a server may take for one of them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from msgspec import Struct

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.core.json_values import Object

_MAX_LETTERS = 256
_MAX_CACHED_LENGTH = 64


def letters_of(name: str) -> str:
    """A name without case, punctuation and invisible characters, as the most lenient server may read it. Some servers
    (those in Go) take a key in any case."""
    return _find_letters(name) if len(name) <= _MAX_CACHED_LENGTH else _read_letters(name)


def _read_letters(name: str) -> str:
    return "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name[:_MAX_LETTERS]).casefold()))


_find_letters = lru_cache(4096)(_read_letters)


class Spellings(Struct, frozen=True):
    """Names that something is decided by, in every spelling that servers of the protocol document."""

    names: frozenset[str] = frozenset()
    by_letters: Mapping[str, tuple[str, ...]] = EMPTY_MAPPING
    first_by_other: Mapping[str, str] = EMPTY_MAPPING
    """The usual spelling of each further one."""


def read_spellings(table: str) -> Spellings:
    """From words such as `tools toolConfig=tool_config`."""
    rows = [tuple(word.split("=")) for word in table.split()]
    return Spellings(
        frozenset(name for row in rows for name in row),
        {letters_of(row[0]): row for row in rows},
        {other: row[0] for row in rows for other in row[1:]},
    )


class ObjectMembers(Struct, frozen=True, kw_only=True):
    """Members that name objects which the provider stores. All names are letters in lower case (`letters_of`), unless
    something else is said."""

    names: frozenset[str] = frozenset()
    """Their value is a name, or a list of names."""
    forwarded_names: frozenset[str] = frozenset()
    """The same, in requests that are only forwarded."""
    files: frozenset[str] = frozenset({"fileid"})
    """Their value is the id of a file, in what a provider has not answered itself."""
    forwarded_files: frozenset[str] = frozenset()
    """Exact names of members with a file, in requests that are only forwarded."""
    id_holders: frozenset[str] = frozenset()
    """Their value is an object, or a list of objects, with the `id`."""
    containers: frozenset[str] = frozenset()
    """Their value is the id of a container, or an object with its `id`."""
    turns: frozenset[str] = frozenset()
    """Their value is the id of an answer that the provider holds, to continue from."""
    prefixes: Mapping[str, str] = EMPTY_MAPPING
    """How their values begin. Others are the vendor's own (Anthropic's skills)."""
    stored_items: Mapping[str, str] = EMPTY_MAPPING
    """Types of objects whose `id` names what the provider has stored, unless they have the other member themselves."""
    answer_types: tuple[str, ...] = ()
    """How the types of what the provider has answered end. The files that they name are not read again."""
    uris: frozenset[str] = frozenset()
    """Their value is a URI that may be the name of an object; in what is forwarded that of every name which ends so."""
    name_in_uri: Callable[[str], str] = lambda uri: ""
    """The name of the object that a URI without escapes is about; "" for a page of the web and for data."""
    created: tuple[str, ...] = ("id",)
    """Exact names in the answers of endpoints that create objects: what the provider fills in."""


class ToolCosts(Struct, frozen=True, kw_only=True):
    """What the tools cost that a provider runs itself. A tool that is in no list may cost more than its tokens, and its
    answer does not say how much."""

    tokens_only: frozenset[str] = frozenset()
    """Tools that cost only the tokens in the usage: by their common name (`ir.PROVIDER_TOOLS`), or by their type. A
    version may follow the name."""
    searches: frozenset[str] = frozenset()
    """Tools that cost a search for each use, which `Usage.searches` counts."""
    members: frozenset[str] = frozenset()
    """Outermost members of a request that cost money besides its tokens. Those that the protocol does not know may do
    so, too: they are in no list."""
    markers: tuple[bytes, ...] = ()
    """Bytes of a request that may declare tools where no reader looks for them."""
    audio_markers: tuple[bytes, ...] = ()
    """Bytes without which a request has no audio, whose tokens can have a price of their own."""
    model_settings: Mapping[str, frozenset[str]] = EMPTY_MAPPING
    """Outermost members that hold the model's own settings, and those settings that cost nothing but tokens. Others may
    choose tools, or what makes tokens dearer."""
    usual_values: Mapping[str, frozenset[bytes]] = EMPTY_MAPPING
    """Outermost members that make tokens dearer than their price, and the values with which they do not."""

    def is_tokens_only(self, kind: str) -> bool:
        return any(kind == name or kind.startswith(f"{name}_") for name in self.tokens_only)


class RequestMembers(Struct, frozen=True, kw_only=True):
    """The names of the members of a protocol's requests."""

    outermost: frozenset[str] = frozenset()
    """All members of a request for an answer that choose no other model, provider or tools than those which are judged,
    in all spellings; also those of servers that are only compatible."""
    forwarded: frozenset[str] = frozenset()
    """The same for the endpoints in `Http.passthrough_endpoints`, and for the fields of their forms."""
    passing_rules: frozenset[str] = frozenset()
    """Further ones that choose among a model's providers, or a model without tools: rules for tools let them pass."""
    passing_keys: frozenset[str] = frozenset()
    """Further ones that let the model use tools of the server: a key for certain models may send them."""
    decisive: Spellings = Spellings()
    """Outermost members by which a gateway decides."""
    judged: Spellings = Spellings()
    """Members inside of a body by which rules and limits judge."""
    free: frozenset[str] = frozenset()
    """Members with users' own data: what their tools take, schemas, notes. Names in it are free."""
    free_objects: frozenset[str] = frozenset()
    """The same where the value is an object."""
    has_settings: Callable[[Object], bool] = lambda node: False
    """Are the members of this object settings for the server, also those that are free elsewhere?"""
    inner_requests: str = ""
    """The outermost member of a forwarded body with a list of requests, each of which names the model again."""
    read_model: Callable[[str], str] = lambda name: name
    """The name of a model without that of its collection."""
    turns: frozenset[str] = frozenset()
    """Outermost members with the conversation. Only the tools in it can choose a model."""
    turn_sources: tuple[str, ...] = ()
    """Outermost members that name turns which the provider has, so that a request needs none of its own."""
    declarations: frozenset[str] = frozenset()
    """Members with lists or objects that declare tools."""
    tool_choices: frozenset[str] = frozenset()
    """Members that choose tools, or bring some, in another way."""
    tool_places: frozenset[str] = frozenset()
    """Outermost members under which rules judge all tools."""
    items_with_tools: frozenset[str] = frozenset()
    """Types of items in a conversation whose tools are judged, or which only repeat what a server has listed."""
    stored_tools: Mapping[str, type] = EMPTY_MAPPING
    """Outermost members, with the types of their values, that name something at the provider with tools of its own."""
    check_tool_servers: Callable[[Object, bool], None] = lambda body, removes_tools: None
    """Raises Malformed where a body names an MCP server whose tools no rule can judge; and, where rules remove tools,
    one that says itself which tools it has."""
    tool_costs: ToolCosts = ToolCosts()
    cache_breakpoints: tuple[str, ...] = ()
    """Members that mark how far a prompt should be cached; what is cached does not depend on them."""
    objects: ObjectMembers = ObjectMembers()


def letter_set(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(letters_of, names))
