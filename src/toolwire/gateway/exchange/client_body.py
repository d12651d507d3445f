"""A client's body: one value that reads its bytes once, and no further than somebody asks."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolwire.core.codec import Codec, Members, RequestPeek
from toolwire.core.ir import EMPTY_MAPPING, Failure, Request
from toolwire.core.json_values import Malformed, Object, Path, decode, encode, expect_object, replace_lone_halves
from toolwire.gateway.exchange.request_body import (
    MAX_VALUES,
    PLAIN_KEYS,
    CheckedKeys,
    check_members,
    decode_members,
    has_too_many_values,
    replace_model,
)
from toolwire.protocols import CODECS

TOO_DEEP = "the JSON is nested too deeply"


class ClientBody:
    """The bytes of a request, its outermost members, the decoded value and the request in the internal form: each is
    made at most once, and shared by all who ask."""

    __slots__ = (
        "_repairs",
        "_request",
        "_tool_count",
        "_value",
        "codec",
        "data",
        "has_lone_halves",
        "is_judged",
        "keys",
        "members",
        "peek",
    )

    def __init__(
        self,
        codec: Codec,
        data: bytes,
        members: Members = EMPTY_MAPPING,
        peek: RequestPeek = RequestPeek(),  # noqa: B008 — it is frozen
        keys: CheckedKeys = PLAIN_KEYS,
        has_lone_halves: bool = False,
    ) -> None:
        self.codec, self.data = codec, data
        self.members, self.peek, self.keys = members, peek, keys
        self.has_lone_halves = has_lone_halves
        """Has it half of a surrogate pair? The translation replaces it and reports that, so these bytes do not pass."""
        self.is_judged = False
        """Has somebody decided by what is inside of it? Then it is written again from what was read."""
        self._tool_count = -1
        self._value: Object | None = None
        self._request: Request | None = None
        self._repairs: list[Path] = []

    def __len__(self) -> int:
        return len(self.data)

    @property
    def tool_count(self) -> int:
        """How many tools it declares."""
        if self._tool_count < 0:
            self._tool_count = self.codec.count_tools(self.members)
        return self._tool_count

    def has_tools(self) -> bool:
        return self.tool_count > 0

    def may_have(self, markers: Sequence[bytes]) -> bool:
        """Is one of these in its bytes? Without them it need not be read."""
        find = self.data.find  # `in` is ten times slower: it raises and drops an error first
        for marker in markers:  # noqa: SIM110 — a generator would cost more than the search
            if find(marker) >= 0:
                return True
        return False

    def decode(self) -> Object:
        """The whole value; what a key has that is there twice is its last value. Raises Malformed."""
        if self._value is None:
            self._value = expect_object(decode(self.data, None, len(self.data), self._repairs), None)
        return self._value

    def read_request(self) -> Request:
        """The request in the internal form. Raises Malformed."""
        if self._request is None:
            try:
                self._request = self.codec.read_request(self.decode())
            except RecursionError:  # newer Pythons read deeper JSON than the readers can walk
                raise Malformed(None, TOO_DEEP) from None
        return self._request

    @property
    def repairs(self) -> Sequence[Path]:
        """The places where U+FFFD replaced half of a surrogate pair; known once it is decoded."""
        return self._repairs

    def judge(self) -> Object:
        """The whole value, for rules, rights and limits: what they judge is what is sent. A provider could read other
        things from the client's own bytes, such as the first of two equal keys. Raises Malformed."""
        value = self.decode()
        self.is_judged = True
        return value

    def write(self, model: str = "") -> bytes:
        """The body for a provider of its own protocol, with the provider's name of the model; "" leaves it as it is.
        These are the client's own bytes, unless somebody has judged them. Both keep the prefix of a conversation, so
        that prompt caches hold."""
        if self.is_judged:
            value = self.decode()
            return encode({**value, "model": model} if model and value.get("model") != model else value)
        return replace_model(self.data, model) if model and self.peek.model != model else self.data


NO_BODY = ClientBody(next(iter(CODECS.values())), b"")
"""Of a request that has none, or whose body is not read here."""


def read_client_body(codec: Codec, data: bytes) -> ClientBody | Failure:
    """Read the outermost members of a request for an answer. A failure if it is not a body of this protocol."""
    found = read_object(codec, data)
    if found is not UNREADABLE:
        return found
    try:
        codec.read_request(expect_object(decode(data), None))
    except Malformed as bad:
        return Failure("invalid", str(bad), 400, param=bad.path)
    return Failure("invalid", "`model` must be a string, and `stream` true or false", 400)


UNREADABLE = Failure("invalid", "the body must be a JSON object, with a string as `model`", 400)


def read_object(codec: Codec, data: bytes) -> ClientBody | Failure:
    """Read the outermost members of a body that has its model and its stream flag as the protocol does."""
    if has_too_many_values(data):
        return Failure("too_large", f"the request has more than {MAX_VALUES:,} JSON values; send fewer", 413)
    found, readable = _read_members(codec, data), data
    if found is None and (mended := replace_lone_halves(data)) is not None:
        readable = mended.encode()
        found = _read_members(codec, readable)
    if found is None:
        return UNREADABLE
    members, peek = found
    return ClientBody(codec, data, members, peek, check_members(members, readable), readable is not data)


def _read_members(codec: Codec, data: bytes) -> tuple[Members, RequestPeek] | None:
    try:
        members = decode_members(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    peek = codec.peek_request(members)
    return None if peek is None else (members, peek)
