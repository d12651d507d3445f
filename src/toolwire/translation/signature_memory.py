"""Records of a model's turns in a store, for clients whose protocol cannot carry seals (Chat).

Such a client sends back text and calls, without the order between them. A `TurnRecord` keeps the rest, under the id of
the turn's first call: the thinking, every seal, the order of all parts, and ids that were rewritten for the client.
`restore_turns.py` puts it back into the next request, for its maker only.

A record is also kept of an answer of which the client saw only a part, because the server ran some of its calls
(`tool_rounds.py`). If that has no call of the client, the first seal that the client got identifies it, or else its
text and the user's question.

The answer gets no extra field for this: most clients would drop it, and some refuse fields that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Codec
from toolwire.core.envelopes import TOOLWIRE_MAKER, EnvelopeEntry, read_envelope, write_envelope
from toolwire.core.events import Event, PartStart, SealDelta
from toolwire.core.ids import hex_digest
from toolwire.core.ir import (
    Call,
    Choice,
    Media,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Reasoning,
    Request,
    Response,
    Result,
    Seal,
    Text,
    Turn,
    plain_text,
)
from toolwire.core.json_values import Json, Malformed, decode, encode_text
from toolwire.translation.answer_steps import AnswerSteps
from toolwire.translation.tool_rounds import Round

RECORD_VERSION = 1
"""The first byte of an encoded record."""


class ReasoningPiece(Struct, frozen=True, array_like=True, tag="r", gc=False):
    """A whole reasoning part. The client may not have seen it, or not all of it."""

    text: str
    seal: str | None = None
    form: Literal["", "summary", "raw"] = ""
    hidden: bool = False
    id: str = ""


class TextPiece(Struct, frozen=True, array_like=True, tag="t", gc=False):
    """A text part. The client has the text, so that its length is enough to find it again."""

    length: int
    seal: str | None = None
    text: str = ""
    """The text itself, in answers of several rounds, whose texts the client may have joined."""


class ClientCallPiece(Struct, frozen=True, array_like=True, tag="c", gc=False):
    """A call that the client has, with what the client does not know of it."""

    id: str
    """The client's id."""
    seal: str | None = None
    provider_id: str = ""
    """The provider's id, where it differs."""
    item: str = ""
    """As `ir.Call.item_id`."""


class HiddenCallPiece(Struct, frozen=True, array_like=True, tag="x", gc=False):
    """A call that the client never saw, because the server ran it. The id is the provider's."""

    id: str
    name: str
    arguments: str
    seal: str | None = None
    item: str = ""


class HiddenResultPiece(Struct, frozen=True, array_like=True, tag="a"):
    """The result of such a call."""

    id: str
    name: str
    error: bool | None
    content: tuple[tuple[str, str, str, str], ...]
    """Parts as (kind, MIME type, data, name); kind is "text" or a kind of media."""
    value: Json = None


Piece: TypeAlias = ReasoningPiece | TextPiece | ClientCallPiece | HiddenCallPiece | HiddenResultPiece


class TurnRecord(Struct, frozen=True, array_like=True):
    maker: str
    """As `ir.Seal.maker`."""
    pieces: tuple[Piece, ...]
    """Its parts in the order in which the model made them."""
    fingerprint: str = ""
    """See `turn_fingerprint`; "" where the id of the first call is enough to identify the turn."""
    context_digest: str = ""
    """A digest of everything before the turn, where the model binds its thinking to that (see `PrefixDigests`)."""


_encode_msgpack = msgspec.msgpack.Encoder().encode
_decode_msgpack = msgspec.msgpack.Decoder(TurnRecord).decode


def decode_record(data: bytes) -> TurnRecord | None:
    """None for a record of another version, or data that is not a record."""
    if data[:1] != bytes((RECORD_VERSION,)):
        return None
    try:
        return _decode_msgpack(memoryview(data)[1:])
    except msgspec.MsgspecError:
        return None


@lru_cache(maxsize=256)
def needs_memory(client: Codec, provider: Codec) -> bool:
    """Does the provider need something back that the client's protocol cannot carry? Unsealed thinking (DeepSeek's) is
    left out by many clients that could carry it."""
    rules = provider.constraints
    return rules.needs_reasoning_returned or (not client.constraints.seal_slots and bool(rules.seal_slots))


# --- answers: what to store -------------------------------------------------------------------------------------------


def collect_records(
    response: Response,
    provider: Codec,
    maker: str,
    steps: AnswerSteps | None,
    has_ended: bool,
    context_digest: Callable[[], str],
) -> dict[str, bytes]:
    """The records of an answer, by key. `steps` is None where the client got the calls unchanged. Of an answer that has
    not ended, only the choices that have are recorded."""
    unsealed = provider.constraints.needs_reasoning_returned
    out: dict[str, bytes] = {}
    for choice in response.choices:
        if (has_ended or choice.finish is not None) and _is_worth_keeping(choice, steps, unsealed):
            calls = None if steps is None else steps.calls.get(choice.index, ())
            recorded = _record_turn(choice, maker, calls)
            if recorded is not None:
                id, record = recorded
                out |= records_by_key(id, replace(record, context_digest=context_digest()))
    return out


def records_by_key(id: str, record: TurnRecord) -> dict[str, bytes]:
    """A record under the id of its call; and under its fingerprint too, where a later turn may have the same id."""
    data = bytes((RECORD_VERSION,)) + _encode_msgpack(record)
    return {id: data, f"{id}#{record.fingerprint}": data} if record.fingerprint else {id: data}


def _record_turn(choice: Choice, maker: str, client_calls: Sequence[Call] | None) -> tuple[str, TurnRecord] | None:
    """A turn and the id it is stored under; None where there is no call with an id."""
    provider_calls = [part for part in choice.parts if isinstance(part, Call)]
    calls = provider_calls if client_calls is None else client_calls
    if not calls or not calls[0].id or len(calls) != len(provider_calls):
        return None
    remaining = iter(calls)
    pieces = tuple(
        piece_from_call(part, next(remaining).id) if isinstance(part, Call) else piece_from_part(part)
        for part in choice.parts
        if isinstance(part, (Call, Text, Reasoning))
    )
    fingerprint = turn_fingerprint(calls, plain_text(choice.parts)) if has_common_id(calls[0]) else ""
    return calls[0].id, TurnRecord(maker, pieces, fingerprint)


_SEALABLE_PARTS = frozenset({Call, Text, Reasoning})


def _is_worth_keeping(choice: Choice, steps: AnswerSteps | None, keeps_unsealed_reasoning: bool) -> bool:
    """Is there anything that the client does not have: a seal, another id, or unsealed thinking that must come back?"""
    for part in choice.parts:
        kind = type(part)
        if kind in _SEALABLE_PARTS and (part.seal is not None or (keeps_unsealed_reasoning and kind is Reasoning)):  # type: ignore[union-attr]
            return True
    if steps is None or not steps.has_renamed_ids:
        return False
    provider_ids = [part.id for part in choice.parts if isinstance(part, Call)]
    client_ids = steps.call_ids(choice.index)
    return any(id and id != client_id for id, client_id in zip(provider_ids, client_ids, strict=False))


def seal_value(seal: Seal | None) -> str | None:
    return None if seal is None else seal.value


def piece_from_part(part: Text | Reasoning) -> Piece:
    if isinstance(part, Text):
        return TextPiece(len(part.text), seal_value(part.seal))
    return ReasoningPiece(part.text, seal_value(part.seal), part.form, part.hidden, part.id)


def piece_from_call(part: Call, id: str) -> Piece:
    return ClientCallPiece(id, seal_value(part.seal), "" if part.id == id else part.id, part.item_id)


# --- ids that are not unique ------------------------------------------------------------------------------------------

_RANDOM_ID_END = re.compile(r"(?=[0-9]*[A-Za-z]|[0-9]{10})[A-Za-z0-9]{6,}$")
"""The end of a random id."""


def has_common_id(call: Call) -> bool:
    """Could another turn have this id? Some servers number their calls, or name them after the tool."""
    random = _RANDOM_ID_END.search(call.id)
    return random is None or random[0] in call.name


def turn_fingerprint(calls: Sequence[Call], text: str) -> str:
    """A digest of what the client has of a turn. Arguments are normalised, because clients encode them again."""
    words = [text, *(word for call in calls for word in (call.id, call.name, _canonical_arguments(call.arguments)))]
    return hex_digest("\0".join(words), 16)


def fingerprinted_key(calls: Sequence[Call], turns: Sequence[Turn]) -> str:
    """The second key of a turn (see `records_by_key`); "" where the id of its first call is unique."""
    if not calls or not has_common_id(calls[0]):
        return ""
    return f"{calls[0].id}#{turn_fingerprint(calls, ''.join(plain_text(turn.parts) for turn in turns))}"


MAX_REMEMBERED_ARGUMENTS = 4096
"""Characters. Those of longer calls would take too much memory."""


def _canonical_arguments(arguments: str) -> str:
    """Agents send the calls of all turns again with every turn."""
    return _normalise_arguments(arguments) if len(arguments) > MAX_REMEMBERED_ARGUMENTS else _known_form(arguments)


def _normalise_arguments(arguments: str) -> str:
    if not arguments.strip():
        return "{}"
    try:
        return msgspec.json.encode(_normalise_numbers(decode(arguments)), order="deterministic").decode()
    except (Malformed, RecursionError, msgspec.MsgspecError):
        return arguments


_known_form = lru_cache(maxsize=1024)(_normalise_arguments)


def _normalise_numbers(value: Json) -> Json:
    """JavaScript writes 1.0 as 1."""
    if isinstance(value, dict):
        return {key: _normalise_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(_normalise_numbers, value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


# --- what is before a turn --------------------------------------------------------------------------------------------

_IGNORED_FIELDS = frozenset({"origin", "cache", "seal", "item_id"})
"""Fields that a model does not see."""


class PrefixDigests(Struct, eq=False):
    """Digests of what is before each turn of a request, computed on demand.

    Newer Anthropic models bind their thinking to it, and some clients change the beginning of a session later.
    """

    request: Request
    digests: list[str] = []

    def digest_before(self, index: int) -> str:
        digests, request = self.digests, self.request
        if not digests:
            digests.append(hex_digest(_digest_text((request.system, request.tools)), 16))
        for turn in request.turns[len(digests) - 1 : index]:
            digests.append(hex_digest(digests[-1] + _digest_text(turn), 16))
        return digests[index]


_DIGEST_NAMES = {ProviderCall: "HostedCall", ProviderResult: "HostedResult", ProviderTool: "HostedTool"}
"""The old names of these classes, which the digests in existing stores were made with."""


def _digest_text(value: object) -> str:
    return encode_text(_strip_for_digest(value))


def _strip_for_digest(value: Any) -> Json:
    """A node as JSON, without what a client may change while it means the same: thinking and empty text."""
    if isinstance(value, Struct):
        fields = (field for field in value.__struct_fields__ if field not in _IGNORED_FIELDS)
        name = _DIGEST_NAMES.get(type(value), type(value).__name__)
        return [name, *(_strip_for_digest(getattr(value, field)) for field in fields)]
    if isinstance(value, tuple):
        return [
            _strip_for_digest(item)
            for item in value
            if not isinstance(item, Reasoning) and not (isinstance(item, Text) and not item.text)
        ]
    return value


# --- requests: what may be in the store -------------------------------------------------------------------------------


def memory_keys(request: Request) -> tuple[str, ...]:
    """The keys under which records may be stored: those of calls in turns without seals of their own."""
    found: dict[str, None] = {}
    for role, turns in groupby(request.turns, attrgetter("role")):
        if role != "assistant":
            continue
        run = list(turns)
        calls_of_turns = [*map(unsealed_calls, run)]
        for turn, calls in zip(run, calls_of_turns, strict=True):
            found |= dict.fromkeys(call.id for call in calls)
            found[fingerprinted_key(calls, [turn])] = None
        if len(run) > 1:  # some clients split one turn into several messages
            found[fingerprinted_key([*chain.from_iterable(calls_of_turns)], run)] = None
    found.pop("", None)
    return tuple(found)


def unsealed_calls(turn: Turn) -> list[Call]:
    """The calls of a turn; none where the client sent seals itself, because then those are used."""
    calls: list[Call] = []
    for part in turn.parts:
        kind = type(part)
        if kind is Call and part.id:  # type: ignore[union-attr]
            calls.append(part)  # type: ignore[arg-type]
        if (kind is Call or kind is Reasoning or kind is Text) and part.seal is not None:  # type: ignore[union-attr]
            return []
    return calls


# --- answers of which the client saw only a part ---


class VisibleAnswer(Struct, frozen=True):
    """What the client saw of an answer."""

    calls: Sequence[Call]
    text: str = ""
    seal: str = ""
    """The first seal."""
    user_text: str = ""
    """The question."""

    @property
    def key(self) -> str:
        """The key of its record; "" where nothing identifies the answer."""
        if self.calls:
            return self.calls[0].id
        if self.seal:
            # Gemini's SDKs decode seals and encode them again, with another base64 alphabet.
            seal = self.seal.rstrip("=").replace("-", "+").replace("_", "/")
            return f"seal_{hex_digest(seal, 32)}"
        words = "\0".join((self.user_text, self.text))
        return f"said_{hex_digest(words, 32)}" if self.text.strip() else ""


def collect_hidden_records(
    rounds: Sequence[Round],
    last_round: tuple[Sequence[Part], Sequence[Result]],
    maker: str,
    visible: VisibleAnswer,
    to_runner_call: Callable[[Call], Call],
) -> dict[str, bytes]:
    """The record of an answer, by key. `last_round` is its parts, and the results of the calls that the server ran.
    `to_runner_call` converts a provider's call to the name and arguments of the tool that the server runs."""
    if not visible.key:
        return {}
    pieces: list[Piece] = []
    for finished in rounds:
        pieces += _pieces_of_round(finished.parts, finished.results, (), to_runner_call)
    pieces += _pieces_of_round(*last_round, visible.calls, to_runner_call)
    has_common = bool(visible.calls) and has_common_id(visible.calls[0])
    fingerprint = turn_fingerprint(visible.calls, visible.text) if has_common else ""
    return records_by_key(visible.key, TurnRecord(maker, tuple(pieces), fingerprint))


def _pieces_of_round(
    parts: Sequence[Part],
    results: Sequence[Result],
    client_calls: Sequence[Call],
    to_runner_call: Callable[[Call], Call],
) -> Iterator[Piece]:
    hidden = {result.id for result in results}
    remaining = iter(client_calls)
    names: dict[str, str] = {}
    for part in parts:
        if isinstance(part, Call) and part.id in hidden:
            call = to_runner_call(part)
            names[part.id] = call.name
            yield HiddenCallPiece(part.id, call.name, call.arguments, seal_value(part.seal), part.item_id)
        elif isinstance(part, Call):
            client_call = next(remaining, None)
            if client_call is not None:
                yield piece_from_call(part, client_call.id)
        elif isinstance(part, Text):
            yield replace(piece_from_part(part), text=part.text)
        elif isinstance(part, Reasoning):
            yield piece_from_part(part)
    for result in results:
        content = tuple(
            ("text", "", part.text, "") if isinstance(part, Text) else (part.kind, part.mime, part.data, part.name)
            for part in result.content
            if isinstance(part, (Text, Media))
        )
        yield HiddenResultPiece(result.id, names.get(result.id, result.name), result.error, content, result.value)


def hidden_call_keys(request: Request) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for question, run in group_assistant_runs(request.turns):
        if run[0].role == "assistant":
            calls = [part for turn in run for part in turn.parts if isinstance(part, Call) and part.id]
            keys = [*(call.id for call in calls), fingerprinted_key(calls, run)]
            found |= dict.fromkeys(keys if calls else [visible_answer(run, question).key])
    found.pop("", None)
    return tuple(found)


def group_assistant_runs(turns: Sequence[Turn]) -> Iterator[tuple[str, list[Turn]]]:
    """Consecutive turns of the assistant together, all others alone, each with the last text of the user before it."""
    run: list[Turn] = []
    question = ""
    for turn in turns:
        if turn.role == "assistant":
            run.append(turn)
            continue
        if run:
            yield question, run
            run = []
        if turn.role == "user":
            question = plain_text(turn.parts) or question
        yield question, [turn]
    if run:
        yield question, run


def last_user_text(turns: Sequence[Turn]) -> str:
    return next((text for turn in reversed(turns) if turn.role == "user" and (text := plain_text(turn.parts))), "")


def visible_answer(run: Sequence[Turn], user_text: str) -> VisibleAnswer:
    parts = [part for turn in run for part in turn.parts]
    calls = [part for part in parts if isinstance(part, Call) and part.id]
    return VisibleAnswer(calls, plain_text(parts), first_seal(parts), user_text)


def seal_of_event(event: Event) -> str:
    """The seal of an event that can identify the answer, "" for none."""
    if isinstance(event, SealDelta):
        return _identifying_seal(event.seal)
    return _identifying_seal(getattr(event.part, "seal", None)) if isinstance(event, PartStart) else ""


def make_placeholder_seal(client: Codec) -> Seal | None:
    """A seal for thinking that Toolwire made up, so that it goes back to no provider; None where there is no slot."""
    entry = EnvelopeEntry("reasoning", TOOLWIRE_MAKER, "")
    return Seal(client.name, write_envelope([entry])) if "reasoning" in client.constraints.seal_slots else None


def first_seal(parts: Iterable[Part]) -> str:
    return next((found for part in parts if (found := _identifying_seal(getattr(part, "seal", None)))), "")


def _identifying_seal(seal: Seal | None) -> str:
    """The value of a seal that is unique. Envelopes that only name a maker are not."""
    if seal is None:
        return ""
    entries = read_envelope(seal.value)
    return seal.value if entries is None or any(entry.value for entry in entries) else ""
