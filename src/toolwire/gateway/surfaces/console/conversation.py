"""An exchange as a conversation that can be read: what the client sent and got, and what the provider got and sent,
with what changed marked at its place."""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from toolwire.core import ir
from toolwire.core.json_values import Malformed, decode, encode_text, json_pointer
from toolwire.core.losses import Loss
from toolwire.gateway.surfaces.console import api
from toolwire.gateway.surfaces.console.detail import index_losses, list_losses
from toolwire.gateway.surfaces.console.rows import CleanText, loss_row
from toolwire.gateway.telemetry.conversations import Side, full_name, read_side, result_text
from toolwire.gateway.telemetry.record import ExchangeRecord, UpstreamCapture
from toolwire.protocols import CODECS

MAX_TURNS = 500
"""Turns that are shown, the last ones."""
MAX_TEXT = 50_000
"""Characters of one text that are shown; the whole one is in the body."""
MAX_PICTURES = 4 * 1024 * 1024
"""Characters of the pictures of one side, in base64, that are shown."""
MAX_WORDS = 200
MAX_CLEANED = 4000
"""Characters from which the first words are taken: so many more that half of a credential is not among them."""
PICTURE_TYPES: Mapping[bytes, str] = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""What a browser may show, by its first bytes: whatever else a client calls a picture is not shown."""

CALL_PARTS = (ir.Call, ir.ProviderCall, ir.Result, ir.ProviderResult)
Meaning: TypeAlias = tuple[str, ...]
"""What a part says, alike in all protocols."""


def describe_conversation(record: ExchangeRecord, clean: CleanText) -> api.Conversation:
    capture = record.traffic.capture
    client_codec = CODECS.get(record.client.protocol)
    if capture is None or client_codec is None:
        return api.Conversation(client=None, provider=None)
    client = read_side(client_codec, capture.client_request, capture.client_response.data, record.status)
    call = choose_call(capture.upstream_calls)
    provider = read_side(CODECS[call.protocol], call.body, call.response.data, call.status) if call else None
    renamed = call.renamed_tools if call else {}
    meanings = [Counter(list_meanings(side, renamed)) if side is not None else None for side in (client, provider)]
    losses = [loss for loss, is_in_answer in list_losses(record) if not is_in_answer]
    return api.Conversation(
        client=SideWriter(client, meanings[1], renamed, losses, clean).write() if client else None,
        provider=SideWriter(provider, meanings[0], renamed, (), clean).write() if provider else None,
    )


def read_words(record: ExchangeRecord, clean: CleanText) -> tuple[str, str]:
    """The first words of what was asked in this turn, and of the answer, for a list."""
    capture, codec = record.traffic.capture, CODECS.get(record.client.protocol)
    if capture is None or codec is None or record.asked.operation != "chat":
        return "", ""
    side = read_side(codec, capture.client_request, capture.client_response.data, record.status)
    if side is None:
        return "", ""
    asked = (text for turn in reversed(side.turns) if turn.role == "user" for text in _texts(turn))
    answered = (text for turn in side.answers for text in _texts(turn))
    # Agents put their environment and reminders into tags, before or after what the user has written.
    shown = (text for text in asked if not text.lstrip().startswith("<"))
    return _first_words(next(shown, ""), clean), _first_words(next(answered, ""), clean)


def _texts(turn: ir.Turn) -> Iterator[str]:
    return (part.text for part in turn.parts if isinstance(part, ir.Text | ir.Refusal) and part.text.strip())


def _first_words(text: str, clean: CleanText) -> str:
    return " ".join(clean(text[:MAX_CLEANED]).split())[:MAX_WORDS]


def choose_call(calls: Sequence[UpstreamCapture]) -> UpstreamCapture | None:
    """The last one that was answered; if none was, the last."""
    return next((call for call in reversed(calls) if 0 < call.status < 400), calls[-1] if calls else None)


def list_meanings(side: Side, renamed: Mapping[str, str]) -> Iterator[Meaning]:
    for turn in (*side.turns, *side.answers):
        for part in turn.parts:
            yield part_meaning(part, renamed)


def part_meaning(part: ir.Part, renamed: Mapping[str, str]) -> Meaning:
    match part:
        case ir.Text() | ir.Refusal() | ir.Reasoning() | ir.Summary():
            return (type(part).__name__, part.text)
        case ir.Call() | ir.ProviderCall():
            name = full_name(part)
            return ("Call", renamed.get(name, name), _stable(part.arguments))
        case ir.Result() | ir.ProviderResult():
            return ("Result", result_text(part), str(bool(part.error)))
        case ir.Media():
            return ("Media", part.kind, part.data or part.url or part.file_id)
    return (type(part).__name__,)


def _stable(arguments: str) -> str:
    """The same text for arguments that differ only in spaces."""
    try:
        return encode_text(decode(arguments)) if arguments else ""
    except (Malformed, RecursionError):
        return arguments


def describe_part(part: ir.Part) -> tuple[api.PartKind, str, str]:
    """Its kind, its name and its text."""
    match part:
        case ir.Text() | ir.Refusal():
            return "text" if isinstance(part, ir.Text) else "refusal", "", part.text
        case ir.Reasoning() | ir.Summary():
            sealed = "only its maker can read it" if part.seal is not None and not part.text else ""
            return "reasoning" if isinstance(part, ir.Reasoning) else "text", sealed, part.text
        case ir.Call() | ir.ProviderCall():
            return "call", full_name(part), part.arguments
        case ir.Result() | ir.ProviderResult():
            return "result", full_name(part), result_text(part)
        case ir.Media():
            return "media", part.kind, part.name or part.file_id or (part.url if not part.data else part.mime)
        case ir.ToolsAdded():
            return "other", "tools are added", ""
        case ir.ToolReference():
            return "other", "a tool was found", part.name
    return "other", part.kind, ""


class SideWriter:
    """Writes one side, and marks what the other one does not have."""

    def __init__(
        self,
        side: Side,
        others: Counter[Meaning] | None,
        renamed: Mapping[str, str],
        losses: Sequence[Loss],
        clean: CleanText,
    ) -> None:
        self._side, self._renamed, self._clean = side, renamed, clean
        self._others = others.copy() if others is not None else None
        self._losses = index_losses(losses)
        self._room_for_pictures = MAX_PICTURES

    def write(self) -> api.ConversationSide:
        turns = [*self._write_turns(self._side.turns, is_answer=False)]
        answers = [*self._write_turns(self._side.answers, is_answer=True)]
        hidden = max(0, len(turns) - MAX_TURNS)
        # Instructions are the first turn, and say what the rest is about.
        shown = turns if not hidden else [*(turn for turn in turns[:1] if turn.role == "system"), *turns[-MAX_TURNS:]]
        return api.ConversationSide(
            protocol=self._side.protocol, turns=[*shown, *answers], hidden_turns=len(turns) - len(shown)
        )

    def _write_turns(self, turns: Iterable[ir.Turn], is_answer: bool) -> Iterator[api.ConversationTurn]:
        for turn in turns:
            parts = [self._write_part(part) for part in turn.parts]
            yield api.ConversationTurn(
                role=turn.role, is_answer=is_answer, parts=parts, place=json_pointer(ir.source_path(turn)) or ""
            )

    def _write_part(self, part: ir.Part) -> api.ConversationPart:
        place = json_pointer(ir.source_path(part)) or ""
        found = self._losses.get(place, {}) if place else {}
        is_changed = not self._take_other(part)
        kind, name, text = describe_part(part)
        call_id = part.id if isinstance(part, CALL_PARTS) else ""
        return api.ConversationPart(
            kind=kind,
            text=self._clean(text)[:MAX_TEXT],  # half of a credential would not be recognised
            is_cut=len(text) > MAX_TEXT,
            name=self._clean(name),
            call_id=self._clean(call_id),
            pictures=[*self._list_pictures(part)],
            is_error=isinstance(part, ir.Result | ir.ProviderResult) and bool(part.error),
            place=place,
            is_changed=is_changed,
            losses=[loss_row(loss, is_in_answer=False) for _, loss in sorted(found.items())],
        )

    def _take_other(self, part: ir.Part) -> bool:
        """Has the other side this part, too? Sealed reasoning says nothing that could be compared."""
        meaning = part_meaning(part, self._renamed)
        if self._others is None or meaning == (ir.Reasoning.__name__, ""):
            return True
        is_there = self._others[meaning] > 0
        self._others[meaning] -= is_there
        return is_there

    def _list_pictures(self, part: ir.Part) -> Iterator[str]:
        for one in part.content if isinstance(part, ir.Result) else (part,):
            url = self._picture_url(one) if isinstance(one, ir.Media) else ""
            if url:
                yield url

    def _picture_url(self, media: ir.Media) -> str:
        """The picture itself, if it is one: the page loads nothing from elsewhere."""
        if not media.data or len(media.data) > self._room_for_pictures:
            return ""
        try:
            start = binascii.a2b_base64(media.data[:64])
            encoded = binascii.b2a_base64(binascii.a2b_base64(media.data), newline=False).decode()
        except (binascii.Error, ValueError):
            return ""
        mime = next((mime for first, mime in PICTURE_TYPES.items() if start.startswith(first)), "")
        if not mime:
            return ""
        self._room_for_pictures -= len(encoded)
        return f"data:{mime};base64,{encoded}"
