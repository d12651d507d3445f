"""The assistant's message: one slot each for reasoning, text, refusal and calls, in this order."""

from __future__ import annotations

from collections.abc import Mapping
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
    get_list,
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
from toolwire.protocols.openai_chat.tools import read_call, read_calls, write_call, write_plain_call


def read_message(node: Object, path: Path, reading: ReadContext, in_response: bool = False) -> tuple[Part, ...]:
    """The parts of an assistant's message. In an answer empty text says nothing; in a history it is kept."""
    parts = read_reasoning(node, path, reading) if any(map(node.get, REASONING_KEYS)) else []
    said = node.get("content")
    content = read_content(said, (path, "content"), reading)
    if in_response and (not said or type(said) is list):
        content = [part for part in content if not isinstance(part, Text) or part.text]
    if node.get("annotations"):
        content = _attach_citations(content, node, path, reading)
    parts += content
    refusal = node.get("refusal")
    if refusal is not None and get_text(node, "refusal", path):
        parts.append(Refusal(refusal, origin=reading.whole_origin(refusal, (path, "refusal"))))
    if node.get("images"):
        parts += read_content(node["images"], (path, "images"), reading)
    old = node.get("function_call")
    if old is not None and expect_object(old, (path, "function_call")).get("name"):
        parts.append(read_call(old, (path, "function_call"), reading))
    calls = get_list(node, "tool_calls", path)
    if calls:
        parts += read_calls(calls, (path, "tool_calls"), reading)
    return tuple(parts)


def _attach_citations(content: list[Part], node: Object, path: Path, reading: ReadContext) -> list[Part]:
    citations = read_citations(node, path, reading)
    for number, part in enumerate(content):
        if isinstance(part, Text):
            return [*content[:number], replace(part, citations=citations), *content[number + 1 :]]
    return [*content, Text("", citations)] if citations else content


_SLOT_ORDER: Mapping[type, int] = MappingProxyType({Reasoning: 0, Text: 1, Media: 1, Refusal: 2, Call: 3})
"""The wire has one slot for each of these, in this order."""


class MessageSlots:
    """An assistant's parts, sorted into the slots that a message has for them. The wire has no other order."""

    __slots__ = ("calls", "content", "media", "reasoning", "refusals")

    def __init__(self, parts: tuple[Part, ...], where: Path, ledger: Ledger) -> None:
        self.reasoning: list[Reasoning] = []
        self.content: list[Text | Opaque | Reasoning] = []
        self.media: list[Media] = []
        self.refusals: list[str] = []
        self.calls: list[Call] = []
        highest = 0
        for part in parts:
            rank = _SLOT_ORDER.get(type(part), highest)
            if rank > highest:
                highest = rank
            elif rank < highest and ledger.source != ledger.target:
                ledger.note(
                    "order-changed", where, "text, thinking and calls no longer stand in the order they were made"
                )
            if type(part) is Text:
                self.content.append(part)
            elif type(part) is Call:
                self.calls.append(part)
            else:
                self._add_part(part, ledger)

    def _add_part(self, part: Part, ledger: Ledger) -> None:
        match part:
            case Reasoning(origin=origin) if (intact_wire(origin) or {}).get("type") == "thinking":
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
        """The text for all readers; details beside it where a seal of our own must come back."""
        if not self.reasoning:
            return
        text = "".join(part.text for part in self.reasoning)
        if text:
            out["reasoning_content"] = text
        for part in self.reasoning:
            if part.seal is not None and not is_own_seal(part.seal):
                ledger.note("seal-dropped", source_path(part), "the seal of a piece of reasoning was left out")
            elif part.hidden and part.seal is None:
                ledger.note("reasoning-dropped", source_path(part), "a hidden piece of reasoning was left out")
        if any(is_own_seal(part.seal) or (part.origin and intact_wire(part.origin)) for part in self.reasoning):
            details = [write_reasoning_detail(part, number) for number, part in enumerate(self.reasoning)]
            # All entries of a message are of one format; those without a seal cannot tell it themselves.
            form = next(({"format": entry["format"]} for entry in details if "format" in entry), {})
            out["reasoning_details"] = [entry if "format" in entry else entry | form for entry in details]


def note_dropped_part(part: Part, ledger: Ledger) -> None:
    """A part that this wire has no place for."""
    if isinstance(part, Opaque):
        ledger.note_opaque(part)
    elif isinstance(part, (ProviderCall, ProviderResult)):
        ledger.note("part-dropped", source_path(part), f"what the provider's own tool `{part.tool}` did was left out")
    else:
        ledger.note("part-dropped", source_path(part), f"a part of kind `{type(part).__name__}` was left out")


def read_plain_turn(node: Json, path: Path, reading: ReadContext) -> Turn | None:
    """A message that holds a role, one text, beside them the calls or the id of a result, and nothing else."""
    if type(node) is not dict:
        return None
    role: Json = node.get("role")
    content, size = node.get("content"), len(node)
    if type(content) is not str:
        return _read_calls_only_turn(node, path, reading) if content is None and role == "assistant" else None
    text = Text(content, (), None, None, Origin(NAME, (path, "content"), content))
    if size == 2:
        spoken = role in ("user", "assistant", "system", "developer")
        return Turn(role, (text,), "", "", Origin(NAME, path, node)) if spoken else None
    if role == "tool":
        id = node.get("tool_call_id")
        if size != 3 or type(id) is not str:
            return None
        origin = Origin(NAME, path, node)
        return Turn("tool", (Result(id, (text,), None, "", "function", "", None, None, origin),), "", "", origin)
    if role == "assistant" and size == 3:
        calls = node.get("tool_calls")
        if type(calls) is not list:
            return None
        parts: tuple[Part, ...] = (text, *read_calls(calls, (path, "tool_calls"), reading))
        return Turn("assistant", parts, "", "", Origin(NAME, path, node))
    return None


def _read_calls_only_turn(node: Object, path: Path, reading: ReadContext) -> Turn | None:
    """An assistant's message of calls alone."""
    calls = node.get("tool_calls")
    if type(calls) is not list or len(node) != (3 if "content" in node else 2):
        return None
    return Turn("assistant", tuple(read_calls(calls, (path, "tool_calls"), reading)), "", "", Origin(NAME, path, node))


def write_plain_turn(turn: Turn) -> Object | None:
    """The message of a turn that another protocol's client sent, so that no origin in it is our own."""
    parts, role = turn.parts, turn.role
    if turn.name or turn.phase or not parts:
        return None
    if len(parts) != 1:
        return _write_plain_assistant(parts) if role == "assistant" else None
    part = parts[0]
    if type(part) is Text:
        text = _plain_part_text(part) if role in ("user", "assistant", "system") else None
        return None if text is None else {"role": role, "content": text}
    if role == "assistant":
        return _write_plain_assistant(parts)
    if type(part) is not Result or part.cache is not None or not part.id:
        return None
    text = _plain_part_text(part.content[0]) if len(part.content) == 1 else None
    return None if text is None else {"role": "tool", "tool_call_id": part.id, "content": text}


def _write_plain_assistant(parts: tuple[Part, ...]) -> Object | None:
    text = _plain_part_text(parts[0])
    calls = _write_plain_calls(parts if text is None else parts[1:])
    if calls is None:
        return None
    if calls:
        return {"role": "assistant", "content": text, "tool_calls": calls}
    return {"role": "assistant", "content": text}


_PLAIN_MESSAGE_KEYS = frozenset({"role", "content", "tool_calls"})


def read_plain_message(node: Object, path: Path, reading: ReadContext) -> tuple[Part, ...] | None:
    """The parts of an answer's message: a text, calls, or both, where no other key says anything."""
    if not _PLAIN_MESSAGE_KEYS.issuperset(node) and _has_more_keys(node):
        return None
    content, calls = node.get("content"), node.get("tool_calls")
    if content is None:
        spoken: tuple[Part, ...] = ()
    elif type(content) is str:
        # Empty text says nothing here.
        spoken = (Text(content, (), None, None, Origin(NAME, (path, "content"), content)),) if content else ()
    else:
        return None
    if not calls:
        return spoken if calls is None or type(calls) is list else None
    return (*spoken, *read_calls(calls, (path, "tool_calls"), reading)) if type(calls) is list else None


def _has_more_keys(node: Object) -> bool:
    for key, value in node.items():
        if value is not None and key not in _PLAIN_MESSAGE_KEYS and (value or key != "annotations"):
            return True
    return False


def _write_plain_calls(parts: tuple[Part, ...]) -> list[Object] | None:
    """Parts that are all ordinary calls."""
    calls: list[Object] = []
    for part in parts:
        call = write_plain_call(part) if type(part) is Call else None
        if call is None:
            return None
        calls.append(call)
    return calls


def _plain_part_text(part: Part) -> str | None:
    """The text of a part that is nothing but text."""
    if type(part) is Text and part.cache is None and part.seal is None and not part.citations:
        return part.text
    return None


# --- Messages of every shape, both ways: what the short ways leave ---


# --- reading --------------------------------------------------------------------------------------------------------


def read_turns(messages: Json, path: Path, reading: ReadContext) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for number, node in enumerate(messages if messages.__class__ is list else expect_list(messages, path)):
        at = (path, number)
        turns.append(read_plain_turn(node, at, reading) or _read_turn(expect_object(node, at), at, reading))
    return tuple(turns)


def _read_turn(node: Object, path: Path, reading: ReadContext) -> Turn:
    spoken = require_text(node, "role", path)
    role = names.ROLES.get(spoken)
    if role is None:
        raise Malformed((path, "role"), f"unknown role {spoken!r}; known are {', '.join(names.ROLES)}")
    if role == "tool":
        origin = reading.read_origin(node, path, names.TOOL_MESSAGE_KEYS)
        return Turn("tool", (_read_result(node, path, reading, origin),), origin=origin)
    name = get_text(node, "name", path) or ""
    if role == "assistant":
        origin = reading.read_origin(node, path, names.ASSISTANT_KEYS)
        return Turn(role, read_message(node, path, reading), name, origin=origin)
    origin = reading.read_origin(node, path, names.MESSAGE_KEYS)
    return Turn(role, tuple(read_content(node.get("content"), (path, "content"), reading)), name, origin=origin)


def _read_result(node: Object, path: Path, reading: ReadContext, origin: Origin) -> Result:
    """A tool's message, or the old `function` message, which names the function in place of the call."""
    id = "" if node["role"] == "function" else get_text(node, "tool_call_id", path) or ""
    content = tuple(read_content(node.get("content"), (path, "content"), reading))
    return Result(id, content, name=get_text(node, "name", path) or "", origin=origin)


# --- writing --------------------------------------------------------------------------------------------------------


def write_turns(turns: tuple[Turn, ...], foreign: bool, family: Family, ledger: Ledger) -> list[Object]:
    """All turns; `foreign` ones are another protocol's throughout."""
    messages: list[Object] = []
    for turn in turns:
        message = write_plain_turn(turn) if foreign else intact_wire(turn.origin)
        if message is not None:
            messages.append(message)
        else:
            messages += _write_turn(turn, family, ledger)
    return messages


def _write_turn(turn: Turn, family: Family, ledger: Ledger) -> list[Object]:
    if turn.phase:
        ledger.note("no-counterpart", source_path(turn), f"the phase `{turn.phase}` was left out")
    if turn.role == "assistant":
        return [_write_assistant(turn, family, ledger)]
    results = [part for part in turn.parts if isinstance(part, Result)]
    messages = [_write_result(part, family, ledger) for part in results]
    if len(results) < len(turn.parts) or not results:
        rest = tuple(part for part in turn.parts if not isinstance(part, Result)) if results else turn.parts
        out: Object = {"role": _write_role(turn, family, ledger), "content": write_content(rest, family, ledger)}
        if turn.name:
            out["name"] = turn.name
        messages.append(restore_original_keys(out, turn.origin, NAME))
    return messages


def _write_role(turn: Turn, family: Family, ledger: Ledger) -> str:
    if turn.role == "developer" and not family.developer:
        ledger.note(
            "role-mapped",
            source_path(turn),
            "the role `developer` became `system`",
            "not every server knows `developer`",
        )
        return "system"
    return "user" if turn.role == "tool" else turn.role


def write_content(parts: tuple[Part, ...], family: Family, ledger: Ledger) -> Json:
    """Text alone as a string, everything else as a list of parts."""
    if len(parts) == 1:
        only = parts[0]
        if isinstance(only, Text) and only.cache is None and not (only.origin and intact_wire(only.origin)):
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
        elif isinstance(part, Opaque) and is_own(part.origin):
            out.append(part.origin.wire)
        else:
            note_dropped_part(part, ledger)
    return out or ""


def _note_text_losses(part: Text, ledger: Ledger) -> None:
    if part.citations:
        ledger.note("citation-dropped", source_path(part), "the citations of a text in the history were left out")
    if part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a text was left out")


def _write_result(result: Result, family: Family, ledger: Ledger) -> Object:
    wire = intact_wire(result.origin)
    if wire is not None:
        return wire
    content = result.content
    if result.cache is not None and content and isinstance(content[-1], Text) and content[-1].cache is None:
        content = (*content[:-1], replace_fields(content[-1], cache=result.cache))
    elif result.cache is not None:
        ledger.note("cache-dropped", source_path(result), "a cache breakpoint on a result was left out")
    texts = tuple(part for part in content if isinstance(part, Text))
    for part in content:
        if isinstance(part, Media):
            ledger.note("media-dropped", source_path(part) or source_path(result), "media in a result were left out")
        elif not isinstance(part, Text):
            note_dropped_part(part, ledger)
    said = write_content(texts, family, ledger)
    if not result.id and result.name:
        return {"role": "function", "name": result.name, "content": said}
    out: Object = {"role": "tool", "tool_call_id": result.id, "content": said}
    if result.name and family.native:
        # No key of the schema: only a client that sends it gets it through.
        out["name"] = result.name
    return restore_original_keys(out, result.origin, NAME)


def _write_assistant(turn: Turn, family: Family, ledger: Ledger) -> Object:
    spoken = MessageSlots(_provider_results_as_text(turn.parts, ledger), source_path(turn), ledger)
    content: Json = None
    if spoken.content:
        content = _write_assistant_content(spoken, family, ledger)
    elif turn.parts and not spoken.calls and not spoken.refusals:
        content = ""
    out: Object = {"role": "assistant", "content": content}
    if turn.name:
        out["name"] = turn.name
    if spoken.refusals:
        out["refusal"] = "".join(spoken.refusals)
    _write_reasoning(spoken, out, family, ledger)
    for part in spoken.media:
        image = intact_wire(part.origin)
        if image is not None:
            out.setdefault("images", []).append(image)
        else:
            ledger.note("media-dropped", source_path(part), "media in an assistant's turn were left out")
    if len(spoken.calls) == 1 and not spoken.calls[0].id and spoken.calls[0].kind == "function":
        out["function_call"] = write_call(spoken.calls[0], ledger, legacy=True)
    elif spoken.calls:
        out["tool_calls"] = [write_call(call, ledger) for call in spoken.calls]
    return restore_original_keys(out, turn.origin, NAME)


def _provider_results_as_text(parts: tuple[Part, ...], ledger: Ledger) -> tuple[Part, ...]:
    """What a provider's own tools found, as text: there is no other place for it."""
    if not any(isinstance(part, ProviderResult) for part in parts):
        return parts
    told = [provider_result_as_text(part, ledger) if isinstance(part, ProviderResult) else part for part in parts]
    return tuple([part for part in told if part is not None])


def _write_assistant_content(slots: MessageSlots, family: Family, ledger: Ledger) -> Json:
    if all(isinstance(part, Text) for part in slots.content):
        return write_content(tuple(slots.content), family, ledger)
    out: list[Object] = []
    for part in slots.content:
        out.append(write_text(part, family, ledger) if isinstance(part, Text) else part.origin.wire)  # type: ignore[union-attr]
    return out


def _write_reasoning(slots: MessageSlots, out: Object, family: Family, ledger: Ledger) -> None:
    """Reasoning goes back to those who want it, to those who made it, and to nobody else."""
    wanted: list[Reasoning] = []
    for part in slots.reasoning:
        if family.reasoning_back or is_own(part.origin) or is_own_seal(part.seal):
            wanted.append(part)
        else:
            ledger.note("reasoning-dropped", source_path(part), "a piece of reasoning was left out")
    slots.reasoning = wanted
    slots.write_reasoning(out, ledger)
