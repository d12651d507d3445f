"""The messages of a Chat request, read and written, one turn each.

An assistant's message has one slot each for reasoning, text, refusal and tool calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec.structs import replace

from toolwire.core.ir import (
    Call,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Result,
    Text,
    Turn,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_list,
    expect_object,
    get_object,
    get_text,
    require_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, restore_original_keys
from toolwire.core.provider_tools import provider_result_as_text
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.content import (
    read_citations,
    read_content,
    read_reasoning,
    write_media,
    write_reasoning_detail,
    write_text,
)
from toolwire.protocols.openai_chat.models import Family
from toolwire.protocols.openai_chat.names import NAME, REASONING_KEYS, intact_wire, is_own, is_own_seal
from toolwire.protocols.openai_chat.tools import read_call, write_call

# --- reading --------------------------------------------------------------------------------------------------------


def read_turns(messages: Json, path: Path, reading: ReadContext) -> tuple[Turn, ...]:
    return tuple([_read_turn(node, (path, number), reading) for number, node in enumerate(expect_list(messages, path))])


def _read_turn(value: Json, path: Path, reading: ReadContext) -> Turn:
    node = value if type(value) is dict else expect_object(value, path)
    word = node.get("role")
    role = names.ROLES.get(word) if type(word) is str else None
    if role is None:
        word = require_text(node, "role", path)
        raise Malformed((path, "role"), f"unknown role {word!r}; known are {', '.join(names.ROLES)}")
    known = names.MESSAGE_KEYS_BY_ROLE[role]
    origin = Origin(NAME, path, node) if known.issuperset(node) else reading.read_origin(node, path, known)
    name = get_text(node, "name", path) or "" if "name" in node else ""
    if role == "assistant":
        return Turn(role, read_message(node, path, reading), name, "", origin)
    content = read_content(node.get("content"), (path, "content"), reading)
    if role != "tool":
        return Turn(role, content, name, "", origin)
    # An old `function` message has the name of the function instead of the id of a call.
    id = "" if word == "function" else get_text(node, "tool_call_id", path) or ""
    return Turn(role, (Result(id, content, None, name, "function", "", None, None, origin),), "", "", origin)


_PLAIN_ASSISTANT_KEYS = frozenset({"role", "content", "tool_calls"})


def read_message(node: Object, path: Path, reading: ReadContext, in_response: bool = False) -> tuple[Part, ...]:
    """The parts of an assistant's message. In an answer an empty text means nothing; in a history it is kept."""
    has_more_keys = not _PLAIN_ASSISTANT_KEYS.issuperset(node)
    reasoning = read_reasoning(node, path, reading) if has_more_keys and any(map(node.get, REASONING_KEYS)) else []
    value = node.get("content")
    parts = () if value is None else read_content(value, (path, "content"), reading)
    if in_response and (not value or type(value) is list):
        parts = tuple([part for part in parts if not isinstance(part, Text) or part.text])
    if has_more_keys:
        parts = (*reasoning, *_read_other_slots([*parts], node, path, reading))
    calls = node.get("tool_calls")
    if calls is None:
        return parts
    at = (path, "tool_calls")
    return (*parts, *[read_call(call, (at, number), reading) for number, call in enumerate(expect_list(calls, at))])


def _read_other_slots(content: list[Part], node: Object, path: Path, reading: ReadContext) -> list[Part]:
    """The content with its citations, then a refusal, images and the old `function_call`."""
    if node.get("annotations"):
        content = _attach_citations(content, node, path, reading)
    refusal = get_text(node, "refusal", path)
    if refusal:
        content.append(Refusal(refusal, origin=reading.whole_origin(refusal, (path, "refusal"))))
    if node.get("images"):
        content += read_content(node["images"], (path, "images"), reading)
    function_call = get_object(node, "function_call", path)
    if function_call is not None and function_call.get("name"):
        content.append(read_call(function_call, (path, "function_call"), reading))
    return content


def _attach_citations(content: list[Part], node: Object, path: Path, reading: ReadContext) -> list[Part]:
    citations = read_citations(node, path, reading)
    for number, part in enumerate(content):
        if isinstance(part, Text):
            return [*content[:number], replace(part, citations=citations), *content[number + 1 :]]
    return [*content, Text("", citations)] if citations else content


# --- writing --------------------------------------------------------------------------------------------------------


def write_turns(turns: tuple[Turn, ...], family: Family, ledger: Ledger) -> list[Object]:
    messages: list[Object] = []
    for turn in turns:
        wire = intact_wire(turn.origin)
        if wire is not None:
            messages.append(wire)
            continue
        if turn.phase:
            ledger.note("no-counterpart", source_path(turn), f"the phase `{turn.phase}` was left out")
        if turn.role == "assistant":
            messages.append(_write_assistant(turn, family, ledger))
        else:
            _write_turn(turn, messages, family, ledger)
    return messages


def _write_turn(turn: Turn, messages: list[Object], family: Family, ledger: Ledger) -> None:
    """Results are messages of their own, before what else the turn holds."""
    rest = turn.parts
    if Result in map(type, rest):
        messages += [_write_result(part, family, ledger) for part in rest if isinstance(part, Result)]
        rest = tuple([part for part in rest if not isinstance(part, Result)])
        if not rest:
            return
    out: Object = {"role": _write_role(turn, family, ledger), "content": write_content(rest, family, ledger)}
    if turn.name:
        out["name"] = turn.name
    messages.append(restore_original_keys(out, turn.origin, NAME))


def _write_role(turn: Turn, family: Family, ledger: Ledger) -> str:
    if turn.role == "developer" and not family.developer:
        why = "only OpenAI's own models have the role `developer`"
        ledger.note("role-mapped", source_path(turn), "the role `developer` became `system`", why)
        return "system"
    return "user" if turn.role == "tool" else turn.role


def write_content(parts: Sequence[Part], family: Family, ledger: Ledger) -> Json:
    """One text as a string, everything else as a list of parts."""
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, Text) and only.cache is None and intact_wire(only.origin) is None:
            _note_text_losses(only, ledger)
            return only.text
    out: list[Object] = []
    for part in parts:
        if isinstance(part, Text):
            _note_text_losses(part, ledger)
            out.append(write_text(part, family, ledger))
        elif isinstance(part, Media):
            media = write_media(part, family, ledger)
            if media is not None:
                out.append(media)
        elif (isinstance(part, Opaque) and is_own(part.origin)) or _is_thinking_part(part):
            out.append(part.origin.wire)  # type: ignore[union-attr]
        else:
            note_dropped_part(part, ledger)
    return out or ""


def _is_thinking_part(part: Part) -> bool:
    """Is it Mistral's content part of type `thinking`, unchanged?"""
    wire = intact_wire(part.origin) if isinstance(part, Reasoning) else None
    return wire is not None and wire.get("type") == "thinking"


def _note_text_losses(part: Text, ledger: Ledger) -> None:
    if part.citations:
        ledger.note("citation-dropped", source_path(part), "the citations of a text in the history were left out")
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a text was left out")


def _write_result(result: Result, family: Family, ledger: Ledger) -> Object:
    wire = intact_wire(result.origin)
    if wire is not None:
        return wire
    content: Sequence[Part] = result.content
    if result.cache is not None or len(content) != 1 or not isinstance(content[0], Text):
        content = _result_texts(result, ledger)
    written = write_content(content, family, ledger)
    if not result.id and result.name:
        return {"role": "function", "name": result.name, "content": written}
    out: Object = {"role": "tool", "tool_call_id": result.id, "content": written}
    if result.name and family.native:
        # OpenAI's schema has no such key: only a Chat client that sends it gets it passed on.
        out["name"] = result.name
    return restore_original_keys(out, result.origin, NAME)


def _result_texts(result: Result, ledger: Ledger) -> list[Part]:
    """The texts of a result, the last one with the result's cache breakpoint; everything else is lost."""
    content = result.content
    if result.cache is not None and content and isinstance(content[-1], Text) and content[-1].cache is None:
        content = (*content[:-1], replace_fields(content[-1], cache=result.cache))
    elif result.cache is not None:
        ledger.note("cache-dropped", source_path(result), "a cache breakpoint on a result was left out")
    for part in content:
        if isinstance(part, Media):
            ledger.note("media-dropped", source_path(part) or source_path(result), "media in a result were left out")
        elif not isinstance(part, Text):
            note_dropped_part(part, ledger)
    return [part for part in content if isinstance(part, Text)]


def note_dropped_part(part: Part, ledger: Ledger) -> None:
    """Note a part that Chat has no place for."""
    if isinstance(part, Opaque):
        ledger.note_opaque(part)
    elif isinstance(part, (ProviderCall, ProviderResult)):
        ledger.note("part-dropped", source_path(part), f"what the provider's own tool `{part.tool}` did was left out")
    else:
        ledger.note("part-dropped", source_path(part), f"a part of kind `{type(part).__name__}` was left out")


# --- the assistant's messages ---------------------------------------------------------------------------------------


_SLOT_ORDER: Mapping[type, int] = MappingProxyType({Reasoning: 0, Text: 1, Media: 1, Refusal: 2, Call: 3})
"""The order of the slots in a message."""


class MessageSlots:
    """An assistant's parts, sorted into the slots of a message."""

    __slots__ = ("calls", "content", "media", "reasoning", "refusals")

    def __init__(self, parts: tuple[Part, ...], where: Path, ledger: Ledger) -> None:
        self.reasoning: list[Reasoning] = []
        self.content: list[Text | Opaque | Reasoning] = []
        self.media: list[Media] = []
        self.refusals: list[str] = []
        self.calls: list[Call] = []
        highest = 0
        for part in parts:
            kind = type(part)
            rank = _SLOT_ORDER.get(kind, highest)
            if rank >= highest:
                highest = rank
            elif ledger.source != ledger.target:
                ledger.note("order-changed", where, "text, thinking and calls are no longer in their original order")
            if kind is Text:
                self.content.append(part)  # type: ignore[arg-type]
            elif kind is Call:
                self.calls.append(part)  # type: ignore[arg-type]
            else:
                self._add_part(part, ledger)

    def _add_part(self, part: Part, ledger: Ledger) -> None:
        match part:
            case Reasoning() if _is_thinking_part(part):
                self.content.append(part)
            case Reasoning():
                self.reasoning.append(part)
            case Refusal(text):
                self.refusals.append(text)
            case Media():
                self.media.append(part)
            case Opaque(origin=origin) if is_own(origin):
                self.content.append(part)
            case _:
                note_dropped_part(part, ledger)

    def write_reasoning(self, out: Object, ledger: Ledger) -> None:
        """Write `reasoning_content`, and OpenRouter's `reasoning_details` where one of its seals must go back."""
        text = "".join(part.text for part in self.reasoning)
        if text:
            out["reasoning_content"] = text
        for part in self.reasoning:
            if part.seal is not None and not is_own_seal(part.seal):
                ledger.note("seal-dropped", source_path(part), "the seal of a piece of reasoning was left out")
            elif part.hidden and part.seal is None:
                ledger.note("reasoning-dropped", source_path(part), "a hidden piece of reasoning was left out")
        if any(is_own_seal(part.seal) or intact_wire(part.origin) for part in self.reasoning):
            details = [write_reasoning_detail(part, number) for number, part in enumerate(self.reasoning)]
            # All entries of a message have one `format`. Only those with a seal know it.
            form = next(({"format": entry["format"]} for entry in details if "format" in entry), {})
            out["reasoning_details"] = [entry if "format" in entry else entry | form for entry in details]


def _write_assistant(turn: Turn, family: Family, ledger: Ledger) -> Object:
    slots = MessageSlots(_provider_results_as_text(turn.parts, ledger), source_path(turn), ledger)
    content: Json = None
    if slots.content:
        content = write_content(slots.content, family, ledger)
    elif turn.parts and not slots.calls and not slots.refusals:
        content = ""
    out: Object = {"role": "assistant", "content": content}
    if turn.name:
        out["name"] = turn.name
    if slots.refusals:
        out["refusal"] = "".join(slots.refusals)
    if slots.reasoning:
        slots.reasoning = _returned_reasoning(slots.reasoning, family, ledger)
        slots.write_reasoning(out, ledger)
    for part in slots.media:
        image = intact_wire(part.origin)
        if image is not None:
            out.setdefault("images", []).append(image)
        else:
            ledger.note("media-dropped", source_path(part), "media in an assistant's turn were left out")
    calls = slots.calls
    if len(calls) == 1 and not calls[0].id and calls[0].kind == "function":
        out["function_call"] = write_call(calls[0], ledger, legacy=True)
    elif calls:
        out["tool_calls"] = [write_call(call, ledger) for call in calls]
    return restore_original_keys(out, turn.origin, NAME)


def _provider_results_as_text(parts: tuple[Part, ...], ledger: Ledger) -> tuple[Part, ...]:
    """What a provider's own tools found becomes text: Chat has no other place for it."""
    if ProviderResult not in map(type, parts):
        return parts
    texts = [provider_result_as_text(part, ledger) if isinstance(part, ProviderResult) else part for part in parts]
    return tuple([part for part in texts if part is not None])


def _returned_reasoning(reasoning: list[Reasoning], family: Family, ledger: Ledger) -> list[Reasoning]:
    """Reasoning goes back to models that want it, and to the server that made it."""
    returned: list[Reasoning] = []
    for part in reasoning:
        if family.reasoning_back or is_own(part.origin) or is_own_seal(part.seal):
            returned.append(part)
        else:
            ledger.note("reasoning-dropped", source_path(part), "a piece of reasoning was left out")
    return returned
