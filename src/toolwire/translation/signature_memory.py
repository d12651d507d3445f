"""Turns of a model as only their maker can use them, for clients whose protocol has no slot for seals.

Such a client gives back text and calls, in slots of their own and in no order between them. What it cannot carry is
kept by whoever serves it, under the id of the turn's first call: the thinking, every seal, the order of all parts, and
ids that were rewritten for the client. In the next request it is put back where the model made it, for its maker alone.

The answer itself stays as the client's protocol has it. An envelope in a field of ours would save the store for those
clients that echo what they do not know, but most drop it, some refuse it, and it would be sent to all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ids
from toolwire.core.codec import Codec
from toolwire.core.ir import (
    Call,
    Choice,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Reasoning,
    Request,
    Response,
    Seal,
    Text,
    Turn,
    plain_text,
)
from toolwire.core.json_values import Json, Malformed, decode, encode_text

RECORD_VERSION = 1
"""The first byte of what is kept."""


class ReasoningPiece(Struct, frozen=True, array_like=True, tag="r", gc=False):
    """A piece of reasoning, whole; the client may not have seen it, or not all of it."""

    text: str
    seal: str | None = None
    form: Literal["", "summary", "raw"] = ""
    hidden: bool = False
    id: str = ""


class TextPiece(Struct, frozen=True, array_like=True, tag="t", gc=False):
    """A text, of which the client has the words: how long it is, and its seal. The words too, in answers of several
    rounds: there the client may have put them together otherwise."""

    length: int
    seal: str | None = None
    text: str = ""


class ClientCallPiece(Struct, frozen=True, array_like=True, tag="c", gc=False):
    """A call by the client's id for it, with what the client does not know of it."""

    id: str
    seal: str | None = None
    provider_id: str = ""
    """The provider's id, where the client has another."""
    item: str = ""


class HiddenCallPiece(Struct, frozen=True, array_like=True, tag="x", gc=False):
    """A call that the client never saw: somebody else ran it. The id is the provider's."""

    id: str
    name: str
    arguments: str
    seal: str | None = None
    item: str = ""


class HiddenResultPiece(Struct, frozen=True, array_like=True, tag="a"):
    """What such a call gave: pieces of a kind (text, or a kind of media), each with its type, what it holds, and its
    name."""

    id: str
    name: str
    error: bool | None
    content: tuple[tuple[str, str, str, str], ...]
    value: Json = None


Piece: TypeAlias = ReasoningPiece | TextPiece | ClientCallPiece | HiddenCallPiece | HiddenResultPiece


class TurnRecord(Struct, frozen=True, array_like=True):
    """One turn: who made it, its parts in the order they were made, and how to know it again where its id is one that
    comes up often. Where thoughts are `bound` to what stood before them: that, in a few letters."""

    maker: str
    pieces: tuple[Piece, ...]
    fingerprint: str = ""
    context_digest: str = ""


_encode_msgpack = msgspec.msgpack.Encoder().encode
_decode_msgpack = msgspec.msgpack.Decoder(TurnRecord).decode


def encode_record(record: TurnRecord) -> bytes:
    return bytes((RECORD_VERSION,)) + _encode_msgpack(record)


def decode_record(data: bytes) -> TurnRecord | None:
    """None for what another version wrote, or nobody."""
    if data[:1] != bytes((RECORD_VERSION,)):
        return None
    try:
        return _decode_msgpack(memoryview(data)[1:])
    except msgspec.MsgspecError:
        return None


@lru_cache(maxsize=256)
def needs_memory(client: Codec, provider: Codec) -> bool:
    """Does this provider want something back that this client cannot carry, or need not?"""
    rules = provider.constraints
    return not client.constraints.seal_slots and (bool(rules.seal_slots) or rules.needs_reasoning_returned)


# --- answers: what to keep --------------------------------------------------------------------------------------------


class ClientCalls(Protocol):
    """The calls of an answer as the client has them."""

    @property
    def calls(self) -> Mapping[int, Sequence[Call]]:
        """Those of each choice."""

    def call_ids(self, choice: int) -> list[str]: ...


def collect_records(
    response: Response,
    provider: Codec,
    maker: str,
    client_calls: ClientCalls | None,
    has_ended: bool,
    context_digest: Callable[[], str],
) -> dict[str, bytes]:
    """What to keep of a provider's answer, by id. `shown` is what the client has, where that may differ; of an answer
    that has not `ended`, only the choices that have are looked at."""
    bare = provider.constraints.needs_reasoning_returned
    out: dict[str, bytes] = {}
    for choice in response.choices:
        if (has_ended or choice.finish is not None) and _is_worth_keeping(choice, client_calls, bare):
            kept = _record_turn(
                choice, maker, None if client_calls is None else client_calls.calls.get(choice.index, ())
            )
            if kept is not None:
                id, turn = kept
                out |= records_by_key(id, replace(turn, context_digest=context_digest()))
    return out


def records_by_key(id: str, record: TurnRecord) -> dict[str, bytes]:
    """Under its id; and under a name of its own, where the next turn with this id takes that place."""
    data = encode_record(record)
    return {id: data, f"{id}#{record.fingerprint}": data} if record.fingerprint else {id: data}


def _record_turn(choice: Choice, maker: str, client_calls: Sequence[Call] | None) -> tuple[str, TurnRecord] | None:
    """A turn and the id it is kept under; None where nothing could bring it back."""
    made = [part for part in choice.parts if isinstance(part, Call)]
    calls = made if client_calls is None else client_calls
    if not calls or not calls[0].id or len(calls) != len(made):
        return None
    known = iter(calls)
    pieces = tuple(
        piece_from_call(part, next(known).id) if isinstance(part, Call) else piece_from_part(part)
        for part in choice.parts
        if isinstance(part, (Call, Text, Reasoning))
    )
    name = turn_fingerprint(calls, plain_text(choice.parts)) if has_common_id(calls[0]) else ""
    return calls[0].id, TurnRecord(maker, pieces, name)


_SEALABLE_PARTS = frozenset({Call, Text, Reasoning})


def _is_worth_keeping(choice: Choice, client_calls: ClientCalls | None, keeps_unsealed_reasoning: bool) -> bool:
    """Is there anything that the client does not have? Mostly there is not, so little is made to find out. `bare`
    thinking, without a seal, is worth keeping where it must come back."""
    made: list[str] = []
    for part in choice.parts:
        kind = type(part)
        if kind in _SEALABLE_PARTS and (part.seal is not None or (keeps_unsealed_reasoning and kind is Reasoning)):  # type: ignore[union-attr]
            return True
        if kind is Call:
            made.append(part.id)  # type: ignore[union-attr]
    if client_calls is None or not made:
        return False
    known = client_calls.call_ids(choice.index)
    return made != known and any(id and id != other for id, other in zip(made, known, strict=False))


def seal_value(seal: Seal | None) -> str | None:
    return None if seal is None else seal.value


def piece_from_part(part: Text | Reasoning) -> Piece:
    if isinstance(part, Text):
        return TextPiece(len(part.text), seal_value(part.seal))
    return ReasoningPiece(part.text, seal_value(part.seal), part.form, part.hidden, part.id)


def piece_from_call(part: Call, id: str) -> Piece:
    return ClientCallPiece(id, seal_value(part.seal), "" if part.id == id else part.id, part.item)


# --- ids that come up often -------------------------------------------------------------------------------------------

_RANDOM_ID_END = re.compile(r"(?=[0-9]*[A-Za-z]|[0-9]{10})[A-Za-z0-9]{6,}$")
"""The end of an id that was drawn by chance."""


def has_common_id(call: Call) -> bool:
    """Could another turn have this id? Some servers count their calls, or name them after the tool."""
    drawn = _RANDOM_ID_END.search(call.id)
    return drawn is None or drawn[0] in call.name


def turn_fingerprint(calls: Sequence[Call], text: str) -> str:
    """What a client shows of a turn, in a few letters. Clients spell the JSON of arguments anew."""
    told = [text, *(part for call in calls for part in (call.id, call.name, _canonical_arguments(call.arguments)))]
    return ids.hex_digest("\0".join(told), 16)


def fingerprinted_key(calls: Sequence[Call], turns: Sequence[Turn]) -> str:
    """What a turn with these calls is kept under besides its id; "" where no other turn can have that."""
    if not calls or not has_common_id(calls[0]):
        return ""
    return f"{calls[0].id}#{turn_fingerprint(calls, ''.join(plain_text(turn.parts) for turn in turns))}"


def _canonical_arguments(arguments: str) -> str:
    if not arguments.strip():
        return "{}"
    try:
        return msgspec.json.encode(_normalise_numbers(decode(arguments)), order="deterministic").decode()
    except (Malformed, RecursionError, msgspec.MsgspecError):
        return arguments


def _normalise_numbers(value: Json) -> Json:
    """Numbers as every language spells them."""
    if isinstance(value, dict):
        return {key: _normalise_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_normalise_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- what stood before a turn -----------------------------------------------------------------------------------------

_IGNORED_FIELDS = frozenset({"origin", "cache", "seal", "item"})
"""Fields that say nothing to a model."""


class PrefixDigests:
    """What stands before each turn of a client's request, in a few letters, reckoned only as far as it is asked for.
    Some models bind their thoughts to it, and some clients tell the beginning otherwise when a session goes on."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._digests: list[str] = []

    def digest_before(self, index: int) -> str:
        prints, request = self._digests, self._request
        if not prints:
            prints.append(ids.hex_digest(_digest_text((request.system, request.tools)), 16))
        for turn in request.turns[len(prints) - 1 : index]:
            prints.append(ids.hex_digest(prints[-1] + _digest_text(turn), 16))
        return prints[index]

    def digest_of_all(self) -> str:
        return self.digest_before(len(self._request.turns))


_DIGEST_NAMES = {ProviderCall: "HostedCall", ProviderResult: "HostedResult", ProviderTool: "HostedTool"}
"""Names that digests in existing stores were made with: they outlive a rename of the class."""


def _digest_text(value: object) -> str:
    return encode_text(_strip_for_digest(value))


def _strip_for_digest(value: Any) -> Json:
    """Without what a client may tell otherwise while it says the same: its echo of thoughts, and empty texts."""
    if isinstance(value, Struct):
        fields = (field for field in value.__struct_fields__ if field not in _IGNORED_FIELDS)
        name = _DIGEST_NAMES.get(type(value), type(value).__name__)
        return [name, *(_strip_for_digest(getattr(value, field)) for field in fields)]
    if isinstance(value, tuple):
        said = (one for one in value if not isinstance(one, Reasoning) and not (isinstance(one, Text) and not one.text))
        return [_strip_for_digest(one) for one in said]
    return value


# --- requests: what may be kept for them ------------------------------------------------------------------------------


_get_role = attrgetter("role")


def memory_keys(request: Request) -> tuple[str, ...]:
    """The ids under which something may be kept: those of calls in turns that bear no seals themselves."""
    if "assistant" not in map(_get_role, request.turns):
        return ()
    found: dict[str, None] = {}
    run: list[Turn] = []
    for turn in request.turns:
        if turn.role != "assistant":
            run = []
            continue
        run = [*run, turn]
        calls = unsealed_calls(turn)
        found |= dict.fromkeys(call.id for call in calls)
        found[fingerprinted_key(calls, [turn])] = None
        if len(run) > 1:  # some clients make several messages of one turn
            found[fingerprinted_key([call for one in run for call in unsealed_calls(one)], run)] = None
    found.pop("", None)
    return tuple(found)


def calls_with_ids(turn: Turn) -> list[Call]:
    return [part for part in turn.parts if isinstance(part, Call) and part.id]


def unsealed_calls(turn: Turn) -> list[Call]:
    """The calls of a turn; none where the client brought seals of its own: then it is served from those."""
    calls: list[Call] = []
    for part in turn.parts:
        kind = type(part)
        if kind is Call and part.id:  # type: ignore[union-attr]
            calls.append(part)  # type: ignore[arg-type]
        if (kind is Call or kind is Reasoning or kind is Text) and part.seal is not None:  # type: ignore[union-attr]
            return []
    return calls
