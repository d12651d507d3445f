"""A client's body: one value that reads its bytes once, and no further than somebody asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

from toolwire.core.codec import Codec, Members, RequestPeek
from toolwire.core.ir import EMPTY_MAPPING, Failure, Request, Text
from toolwire.core.json_values import Malformed, Object, Path, decode, encode, expect_object, replace_lone_halves
from toolwire.core.request_members import RequestMembers, letters_of
from toolwire.gateway.settings.config import ClientKey
from toolwire.protocols import CODECS
from toolwire.translation.exchange import TOO_DEEP
from toolwire.translation.mistaken_protocol import read_request

# msgspec takes the last of equal keys without a word. A `partial` is equal only to itself, so all of them are kept; and
# it is made without a call of a Python function.
_decode_pairs = msgspec.json.Decoder(dict[partial[Any], Raw], dec_hook=partial).decode
_decode_text = msgspec.json.Decoder(str).decode

decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
"""The outermost members of a body, one scan without decoding their values. Raises `msgspec.DecodeError`,
`UnicodeError` or `RecursionError`."""


def list_members(value: bytes | Raw) -> list[tuple[str, Raw]]:
    """The keys and values of an object, also of a key that is there twice. Raises `msgspec.DecodeError` for another
    value."""
    return [(name.args[0], member) for name, member in _decode_pairs(value).items()]


class CheckedNames(Struct, frozen=True, gc=False):
    """What is wrong with the names of a body's outermost members (duplicate keys, odd spellings), and which of them the
    protocol does not know: those may choose another model or tools."""

    problem: str = ""
    name: str = ""
    unknown: tuple[str, ...] = ()


PLAIN_NAMES = CheckedNames()


_is_place = (-1).__ne__
"""Has `find` found something?"""


class ClientBody(Struct, eq=False):
    """The bytes of a request, its outermost members, the decoded value and the request in the internal form: each is
    made at most once, and shared by all who ask."""

    codec: Codec
    data: bytes
    members: Members = EMPTY_MAPPING
    peek: RequestPeek = RequestPeek()
    names: CheckedNames = PLAIN_NAMES
    has_lone_halves: bool = False
    """Has it half of a surrogate pair? The translation replaces it and reports that, so these bytes do not pass."""
    is_judged: bool = False
    """Has somebody decided by what is inside of it? Then it is written again from what was read."""
    repairs: list[Path] = []
    """The places where U+FFFD replaced half of a surrogate pair; known once it is decoded."""
    _tool_count: int = -1
    _value: Object | None = None
    _request: Request | None = None

    @property
    def tool_count(self) -> int:
        if self._tool_count < 0:
            self._tool_count = self.codec.count_tools(self.members)
        return self._tool_count

    def has_tools(self) -> bool:
        return self.tool_count > 0

    def may_have(self, markers: Sequence[bytes]) -> bool:
        """Is one of these in its bytes? Without them it need not be read."""
        # `in` is ten times slower: it raises and drops an error first; and a loop would cost more than the search.
        return any(map(_is_place, map(self.data.find, markers)))

    def decode(self) -> Object:
        """The whole value; what a key has that is there twice is its last value. Raises Malformed."""
        if self._value is None:
            self._value = expect_object(decode(self.data, None, len(self.data), self.repairs), None)
        return self._value

    def read_request(self) -> Request:
        """The request in the internal form. Raises Malformed."""
        if self._request is None:
            try:
                self._request = read_request(self.codec, self.decode())
            except RecursionError:  # newer Pythons read deeper JSON than the readers can walk
                raise Malformed(None, TOO_DEEP) from None
        return self._request

    def judge(self) -> Object:
        """The whole value, for rules, rights and limits: what they judge is what is sent. A provider could read other
        things from the client's own bytes, such as the first of two equal keys. Raises Malformed."""
        value = self.decode()
        self.is_judged = True
        return value

    def forget_values(self) -> None:
        """Drop what was decoded: the request is on its way, as bytes. A long conversation is ten thousand objects, and
        while many requests wait for their answers, memory that is never used again makes each of them slower."""
        self._value, self._request, self.repairs = None, None, []

    def write(self, model: str = "") -> bytes:
        """The body for a provider of its own protocol, with the provider's name of the model, if it is in a body; ""
        leaves it as it is. These are the client's own bytes, unless somebody has judged them. Both keep the prefix of a
        conversation, so that prompt caches hold."""
        if not self.codec.http.model_in_body:
            model = ""
        if self.is_judged:
            value = self.decode()
            return encode({**value, "model": model} if model and value.get("model") != model else value)
        data = self.data
        if self.has_lone_halves and (mended := replace_lone_halves(data)) is not None:
            data = mended.encode()
        return replace_model(data, model) if model and self.peek.model != model else data


NO_BODY = ClientBody(next(iter(CODECS.values())), b"")
"""Of a request that has none, or whose body is not read here."""


def refuse_empty(body: ClientBody) -> Failure | None:
    """Why no provider is asked: there is nothing to answer. None if there is, or if the provider has earlier turns."""
    members, key = body.members, body.codec.constraints.turns_key
    try:
        request = body.read_request()
        sources = (decode(bytes(members[name])) for name in body.codec.request_members.turn_sources if name in members)
        said = [part for turn in request.turns for part in turn.parts]
        if request.system or any(sources) or any(not isinstance(part, Text) or part.text.strip() for part in said):
            return None
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    return Failure("invalid", f"`{key}` is empty: there is nothing to answer", 400, param=key)


MAX_EMPTY = 8
"""Bytes of a member that may be empty."""


def read_client_body(codec: Codec, data: bytes, is_forwarded: bool = False) -> ClientBody | Failure:
    """Read the outermost members of a body that has its model and its stream flag as the protocol does. A failure if it
    is not a body of this protocol."""
    if len(data) > MAX_VALUES and has_too_many_values(data):
        return Failure("too_large", f"the request has more than {MAX_VALUES:,} JSON values; send fewer", 413)
    body = _read_body(codec, data, codec.peek_request, is_forwarded)
    if body is None:
        return _refuse_unreadable(codec, data, is_forwarded)
    if not body.peek.is_unusual or body.names.problem:
        return body
    try:
        usual = encode(codec.rewrite_unusual(body.decode()))
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    body = _read_body(codec, usual, codec.peek_request, is_forwarded)
    return body or _refuse_unreadable(codec, data, is_forwarded)


def _refuse_unreadable(codec: Codec, data: bytes, is_forwarded: bool) -> Failure:
    """What is wrong with a body. Only a request for an answer is read further, to say it."""
    if is_forwarded:
        return Failure("invalid", "the body must be a JSON object, with a string as `model`", 400)
    try:
        read_request(codec, expect_object(decode(data), None))
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    return Failure("invalid", "`model` must be a string, and `stream` true or false", 400)


def read_modelless_object(codec: Codec, data: bytes) -> ClientBody | Failure:
    """Read the outermost members of a forwarded body that chooses no model; what it has as one may be of any type."""
    body = _read_body(codec, data, lambda _: RequestPeek(), is_forwarded=True)
    return body or Failure("invalid", "the body must be a JSON object", 400)


def _read_body(
    codec: Codec, data: bytes, find_peek: Callable[[Members], RequestPeek | None], is_forwarded: bool, mended: str = ""
) -> ClientBody | None:
    """None if it cannot be read, also `mended`: without half of a surrogate pair."""
    readable = mended.encode() if mended else data
    try:
        members = decode_members(readable)
        peek = find_peek(members)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        peek = None
    if peek is None:
        mended = "" if mended else replace_lone_halves(data) or ""
        return _read_body(codec, data, find_peek, is_forwarded, mended) if mended else None
    # Without white space, these keys and values fill the body exactly if no key is there twice: most clients write so.
    # A key has two quotes, a colon and, except for the last, a comma; around all are two braces.
    size, names = len('"":,'.join(members)) + sum(map(len, members.values())) + 5, PLAIN_NAMES
    if size != len(readable) or not _plain_names(codec, is_forwarded).issuperset(members):
        names = check_names(codec.request_members, [name for name, _ in list_members(readable)], is_forwarded)
    return ClientBody(codec, data, members, peek, names, mended != "")


@lru_cache(maxsize=32)
def _plain_names(codec: Codec, is_forwarded: bool) -> frozenset[str]:
    """Outermost members that need no second look."""
    members = codec.request_members
    return (members.forwarded if is_forwarded else members.outermost) - members.decisive.first_by_other.keys()


# --- the names of the outermost members ---

MAX_NAMES = 1_000
"""Outermost members of a body. The largest API has some fifty."""


def check_names(members: RequestMembers, names: Sequence[str], is_forwarded: bool = False) -> CheckedNames:
    """Find duplicate JSON keys, odd spellings and unknown names among the outermost members of a body: what the gateway
    reads must be what the provider reads. `inner_members.py` looks further where rules or limits apply."""
    if len(names) > MAX_NAMES:
        what = f"the body has more than {MAX_NAMES:,} keys; no provider has so many"
        return CheckedNames(what, names[MAX_NAMES][:80])
    seen: set[str] = set()
    spellings: dict[str, str] = {}
    for name in names:
        if name in seen:
            return CheckedNames(f"`{name[:80]}` is in the body twice, and servers differ in which they take", name[:80])
        seen.add(name)
        letters = letters_of(name)
        decisive = members.decisive.by_letters.get(letters)
        if decisive is None:
            continue
        if name not in decisive:
            what = f"some servers take `{name[:80]}` for `{decisive[0]}`; use the usual spelling"
            return CheckedNames(what, name[:80])
        if letters in spellings:
            what = f"`{name}` and `{spellings[letters]}` are the same field, and servers differ in which they take"
            return CheckedNames(what, name)
        spellings[letters] = name
    return find_unknown_names(members, names, is_forwarded)


def find_unknown_names(members: RequestMembers, names: Sequence[str], is_forwarded: bool) -> CheckedNames:
    """Those that the protocol does not know; the fields of a form may be there several times."""
    known = members.forwarded if is_forwarded else members.outermost
    unknown = tuple(name for name in names if name not in known)
    return CheckedNames("", "", unknown) if unknown else PLAIN_NAMES


def refuse_names(codec: Codec, names: CheckedNames, key: ClientKey | None, has_policy: bool) -> Failure | None:
    """Why a body must not be sent; None if it may. A key for certain models, or rules for tools, do not allow a member
    that the protocol does not know: servers choose other models and tools by such members."""
    if names.problem:
        return Failure("invalid", names.problem, 400, "", names.name)
    members = codec.request_members
    limit = find_limit(key)
    for name in names.unknown if limit or has_policy else ():
        if limit and key is not None and name not in members.passing_keys:
            who = f"the key `{key.name}` is limited to certain {limit}"
        elif has_policy and name not in members.passing_rules:
            who = "this gateway has rules for tools ([[policy]])"
        else:
            continue
        what = f"{who}, and `{name[:80]}` is a member that it does not know: it could choose another model or tools"
        return Failure("permission", f"{what}; leave it out", 403, "", name[:80])
    return None


def find_limit(key: ClientKey | None) -> str:
    """What a key is limited to; "" if it may use everything."""
    if key is None:
        return ""
    return "models" if key.is_restricted else "" if key.has_all_providers else "providers"


# --- the model's name ---

_MODEL_KEY = b'"model"'
_MODEL_PATTERN = re.compile(rb'"model"(?=[ \t\r\n]*:[ \t\r\n]*")')
_MAX_PLACES = 16
"""The model is not replaced in place if the key occurs more often."""


def replace_model(body: bytes, model: str) -> bytes:
    name = encode(model)
    at = body.find(_MODEL_KEY)
    if at >= 0 and body.find(_MODEL_KEY, at + 1) < 0:
        spliced = _splice_model(body, at, name)
        if _find_model(spliced) == model:
            return spliced
    elif at >= 0 and (outer := _splice_outer_model(body, model, name)):
        return outer
    # The key occurs twice, or with escapes: write the outermost keys again, each once.
    fields = decode_members(body)
    fields["model"] = Raw(name)
    return encode(fields)


def _splice_model(body: bytes, at: int, name: bytes) -> bytes:
    start = at + len(_MODEL_KEY)
    while body[start : start + 1] in (b" ", b"\t", b"\r", b"\n", b":"):
        start += 1
    return body[:start] + name + body[body.find(b'"', start + 1) + 1 :]


def _splice_outer_model(body: bytes, model: str, name: bytes) -> bytes | None:
    """Where `"model"` occurs several times, such as in the parameters of a tool: replace the outermost one, if there is
    only one."""
    current = _find_model(body)
    places = [found.start() for found in _MODEL_PATTERN.finditer(body)]
    if current is None or current == model or len(places) > _MAX_PLACES:
        return None
    for at in reversed(places):
        spliced = _splice_model(body, at, name)
        if _find_model(spliced) == model:
            without = _find_model(body[:at] + b'""' + body[at + len(_MODEL_KEY) :])
            return spliced if without == "" else None
    return None


def _find_model(body: bytes) -> str | None:
    """The outermost model of a body, "" if it names none; None if it cannot be read."""
    try:
        members = decode_members(body)
        return _decode_text(members["model"]) if "model" in members else ""
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


# --- how much there is to read ---

MAX_VALUES = 250_000
"""JSON values in a request. The longest conversations of agents have some ten thousand; decoding more than this would
stop the event loop for too long, because Python does nothing else meanwhile."""
_OTHER_BYTES = bytes(set(range(256)) - set(b"{[,"))


def has_too_many_values(body: bytes, limit: int = MAX_VALUES) -> bool:
    """Are there more values than the limit? Mostly decided by counting bytes that begin or separate values."""
    if len(body) < 2 * limit or len(body.translate(None, _OTHER_BYTES)) <= limit:
        return False
    if body.count(b'"') - body.count(b'\\"') > 4 * limit:
        return True  # each value has at most a key and a string, with two quotes each
    # Text may contain many such bytes, for instance a table with commas: count only what is outside of strings.
    outside = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    return len(outside.translate(None, _OTHER_BYTES)) > limit
