"""Whole Chat requests: messages (one turn each), tools and settings, read and written.

An assistant's message has one slot each for reasoning, text, refusal and tool calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolwire.core.codec import Members, RequestPeek, peek_members
from toolwire.core.ir import (
    NO_SETTINGS,
    Call,
    Format,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Refusal,
    Request,
    Result,
    Settings,
    Text,
    Thinking,
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
    expect_text,
    get_bool,
    get_int,
    get_object,
    get_text,
    json_pointer,
    require_text,
)
from toolwire.core.known_tools import write_known_tools
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, present_settings, restore_original_keys
from toolwire.core.provider_tools import provider_result_as_text
from toolwire.core.tokens import asked_effort, find_fixed_sampling, is_openai_model
from toolwire.core.tool_choice import LONGEST_MODE, fit_tool_choice, has_other_choice
from toolwire.protocols.openai_chat import names
from toolwire.protocols.openai_chat.content import (
    read_citations,
    read_content,
    read_reasoning,
    write_media,
    write_reasoning_detail,
    write_text,
)
from toolwire.protocols.openai_chat.models import (
    MEMBERS_WITH_TOOLS,
    SAMPLING_SETTINGS,
    Family,
    family,
    find_reasoning_effort,
    key_as_sent,
    write_stop_sequences,
    write_user,
)
from toolwire.protocols.openai_chat.names import NAME, intact_wire, is_own, is_own_seal, unknown_keys
from toolwire.protocols.openai_chat.tools import (
    can_be_chosen,
    has_other_shape,
    nest_tool_choice,
    read_call,
    read_tool_choice,
    read_tools,
    write_call,
    write_tool_choice,
    write_tools,
)

# --- reading --------------------------------------------------------------------------------------------------------


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
    has_reasoning = has_more_keys and any(map(node.get, names.REASONING_KEYS))
    reasoning = read_reasoning(node, path, reading) if has_reasoning else []
    value = node.get("content")
    parts = () if value is None else read_content(value, (path, "content"), reading)
    if in_response and (not value or type(value) is list):
        parts = tuple([part for part in parts if not isinstance(part, Text) or part.text])
    if has_more_keys:
        parts = (*reasoning, *_read_other_slots(parts, node, path, reading))
    calls = node.get("tool_calls")
    if calls is None:
        return parts
    at = (path, "tool_calls")
    found = [read_call(call, (at, number), reading) for number, call in enumerate(expect_list(calls, at))]
    if Call in map(type, parts):  # some clients write a call in both places
        ids = {call.id for call in found}
        parts = tuple([part for part in parts if not isinstance(part, Call) or part.id not in ids])
    return (*parts, *found)


def _read_other_slots(parts: tuple[Part, ...], node: Object, path: Path, reading: ReadContext) -> list[Part]:
    """The content with its citations, then a refusal, images and the old `function_call`."""
    content = [*parts]
    citations = read_citations(node, path, reading) if node.get("annotations") else ()
    if citations:
        text = next((part for part in parts if isinstance(part, Text)), None)
        content = [replace(part, citations=citations) if part is text else part for part in parts]
        content += [Text("", citations)] if text is None else []
    refusal = get_text(node, "refusal", path)
    if refusal:
        content.append(Refusal(refusal, origin=reading.whole_origin(refusal, (path, "refusal"))))
    if node.get("images"):
        content += read_content(node["images"], (path, "images"), reading)
    function_call = get_object(node, "function_call", path)
    if function_call is not None and function_call.get("name"):
        content.append(read_call(function_call, (path, "function_call"), reading))
    return content


# --- writing --------------------------------------------------------------------------------------------------------


def _write_turns(turns: tuple[Turn, ...], messages: list[Object], family: Family, ledger: Ledger) -> None:
    for turn in turns:
        if (wire := intact_wire(turn.origin)) is not None:
            messages.append(wire)
            continue
        if turn.phase:
            ledger.note("no-counterpart", source_path(turn), f"the phase `{turn.phase}` was left out")
        if turn.role == "assistant":
            messages.append(_write_assistant(turn, family, ledger))
        else:
            _write_turn(turn, messages, family, ledger)


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
    if (wire := intact_wire(result.origin)) is not None:
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
        ledger.note_provider_part(part)
    else:
        ledger.note("part-dropped", source_path(part), f"a part of kind `{type(part).__name__}` was left out")


# --- the assistant's messages ---------------------------------------------------------------------------------------

_SLOT_ORDER: Mapping[type, int] = {Reasoning: 0, Text: 1, Media: 1, Refusal: 2, Call: 3}
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


# --- whole requests -------------------------------------------------------------------------------------------------


def peek_request(members: Members) -> RequestPeek | None:
    found, choice = peek_members(members), members.get("tool_choice")
    if found is None or choice is None or len(choice) <= LONGEST_MODE:
        return found
    return replace(found, is_unusual=has_other_choice(choice, has_other_shape))


def read_request(body: Object) -> Request:
    reading = ReadContext(NAME)
    if "messages" not in body:
        raise Malformed(None, "`messages` is missing")
    if type(body.get("tool_choice")) is dict and has_other_shape(body["tool_choice"]):
        body = nest_tool_choice(body)
    at = (None, "messages")
    messages = enumerate(expect_list(body["messages"], at))
    turns = tuple([_read_turn(node, (at, number), reading) for number, node in messages])
    tools = read_tools(body, reading)
    choice = read_tool_choice(body, reading)
    settings, unread_keys = (NO_SETTINGS, _NO_KEYS) if _SETTING_KEYS.isdisjoint(body) else _read_settings(body, reading)
    if choice is None:
        unread_keys |= _TOOL_CHOICE_KEYS
    elif body.get("tool_choice") is not None and body.get("function_call") is not None:
        unread_keys |= {"function_call"}
    known = names.REQUEST_KEYS - unread_keys if unread_keys else names.REQUEST_KEYS
    model, stream = get_text(body, "model", None) or "", get_bool(body, "stream", None)
    origin = reading.read_origin(body, None, known)
    if reading.unknown_fields and (odd := [field.path for field in reading.unknown_fields if field.what]):
        turns, origin = _loosen_turns(turns, odd), replace(origin, intact=False)
    return Request(model, (), turns, tools, choice, stream, settings, False, origin, tuple(reading.unknown_fields))


def _loosen_turns(turns: tuple[Turn, ...], odd: list[Path]) -> tuple[Turn, ...]:
    """The turns, of which those with an odd shape at one of these places are not written back as they came."""
    places = {json_pointer(path).split("/")[2] for path in odd}
    return tuple([_loosen_turn(turn) if str(number) in places else turn for number, turn in enumerate(turns)])


def _loosen_turn(turn: Turn) -> Turn:
    return replace_fields(turn, parts=tuple([replace_fields(part) for part in turn.parts]))


def _read_settings(body: Object, reading: ReadContext) -> tuple[Settings, frozenset[str]]:
    """The settings, and the known keys whose value has no place in them."""
    unread_keys = _NO_KEYS
    fields: dict[str, Any] = {}
    where: dict[str, Path] = {}
    for field, (key, take) in names.COPIED_SETTINGS.items():
        if body.get(key) is not None:
            fields[field], where[field] = take(body, key, None), (None, key)
    for field, keys, take in (("max_tokens", names.MAX_TOKENS_KEYS, get_int), ("user", names.USER_KEYS, get_text)):
        values = {key: found for key in keys if (found := take(body, key, None)) is not None}
        for key, found in values.items():
            if field not in fields:
                fields[field], where[field] = found, (None, key)
            elif found != fields[field]:
                unread_keys |= {key}
    for key, (field, read) in _SETTING_READERS.items():
        if body.get(key) is not None:
            value = read(body[key], (None, key), reading)
            if value is not None:
                fields[field], where[field] = value, (None, key)
    return (Settings(**fields, where=where) if fields else NO_SETTINGS), unread_keys


def _read_stop_sequences(value: Json, path: Path, _reading: ReadContext) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(expect_text(item, (path, number)) for number, item in enumerate(expect_list(value, path)))


def _read_reasoning_effort(value: Json, path: Path, reading: ReadContext) -> Thinking:
    effort = expect_text(value, path)
    return Thinking("off" if effort == "none" else "", effort, origin=reading.whole_origin(value, path))


def _read_response_format(value: Json, path: Path, reading: ReadContext) -> Format:
    node = expect_object(value, path)
    word, origin = require_text(node, "type", path), reading.whole_origin(value, path)
    kind = names.FORMAT_KINDS.get(word)
    if kind is None:
        raise Malformed((path, "type"), f"unknown format {word!r}; known are {', '.join(names.FORMAT_KINDS)}")
    if kind != "schema":
        return Format(kind, origin=origin)
    at = (path, "json_schema")
    inner = expect_object(node.get("json_schema"), at)
    reading.read_origin(inner, at, names.JSON_SCHEMA_KEYS)
    name, description = get_text(inner, "name", at) or "", get_text(inner, "description", at) or ""
    return Format("schema", inner.get("schema"), name, description, get_bool(inner, "strict", at), origin)


def _read_stream_options(value: Json, path: Path, reading: ReadContext) -> bool | None:
    node = expect_object(value, path)
    reading.read_origin(node, path, names.STREAM_OPTIONS_KEYS)
    return get_bool(node, "include_usage", path)


_SETTING_READERS = {
    "stop": ("stop", _read_stop_sequences),
    "reasoning_effort": ("thinking", _read_reasoning_effort),
    "response_format": ("format", _read_response_format),
    "stream_options": ("stream_usage", _read_stream_options),
}
_SETTING_KEYS = frozenset(
    (*_SETTING_READERS, *names.MAX_TOKENS_KEYS, *names.USER_KEYS, *(key for key, _ in names.COPIED_SETTINGS.values()))
)
_TOOL_CHOICE_KEYS = frozenset({"tool_choice", "function_call"})
_NO_KEYS: frozenset[str] = frozenset()


# --- writing --------------------------------------------------------------------------------------------------------


def write_request(request: Request, ledger: Ledger) -> Object:
    if not request.tools and is_own(request.origin) and is_openai_model(request.model):
        request = _leave_out_tool_members(request, ledger)
    origin = request.origin
    known = family(request.model, is_own(origin) or ledger.source == NAME)
    wire = intact_wire(origin)
    if wire is not None and known.refused.isdisjoint(wire) and not _find_fixed_sampling(request):
        return wire
    messages: list[Object] = []
    if request.system:
        messages.append({"role": "system", "content": write_content(request.system, known, ledger)})
    _write_turns(request.turns, messages, known, ledger)
    out: Object = {"model": request.model, "messages": messages}
    out |= write_known_tools(write_tools, request.tools, ledger, known)
    if request.choice is not None:
        if "tools" in out or "functions" in out or (known.native and not request.tools):
            choice = fit_tool_choice(request.choice, request.tools, can_be_chosen, ledger)
            key, value = write_tool_choice(choice, ledger)
            out[key] = value
        elif request.choice.mode not in ("auto", "none"):
            ledger.note("choice-weakened", source_path(request.choice), "without tools there is nothing to choose")
    if request.stream is not None:
        out["stream"] = request.stream
    _write_settings(request, out, known, ledger)
    out = restore_original_keys(out, origin, NAME)
    if "max_tokens" in known.refused and out.pop("max_tokens", None) is not None:  # beside `max_completion_tokens`
        ledger.note("no-counterpart", (None, "max_tokens"), "`max_tokens` was left out")
    return out


def _find_fixed_sampling(request: Request) -> tuple[str, ...]:
    thinking = request.settings.thinking
    return find_fixed_sampling(request.settings, request.model, "" if thinking is None else asked_effort(thinking))


def _leave_out_tool_members(request: Request, ledger: Ledger) -> Request:
    """A request without tools as OpenAI's own models take it."""
    origin = request.origin
    wire = origin.wire if origin is not None else None
    if origin is None or not isinstance(wire, dict) or MEMBERS_WITH_TOOLS.isdisjoint(wire):
        return request
    for key in filter(MEMBERS_WITH_TOOLS.__contains__, wire):
        what, why = f"`{key}` was left out of a request without tools", f"{request.model} refuses it there"
        ledger.note("setting-mapped", (None, key), what, why)
    kept = {key: value for key, value in wire.items() if key not in MEMBERS_WITH_TOOLS}
    settings = replace(request.settings, parallel=None)
    return replace(request, choice=None, settings=settings, origin=replace(origin, wire=kept))


def _write_settings(request: Request, out: Object, family: Family, ledger: Ledger) -> None:
    settings = request.settings
    has_tools = "tools" in out or "functions" in out
    present = present_settings(settings)
    refused = frozenset() if family.sampling else SAMPLING_SETTINGS
    refused = refused if has_tools else refused | {"parallel"}
    may_reason = settings.thinking is not None or family.no_effort_with_tools
    effort = find_reasoning_effort(request, family, has_tools, ledger) if may_reason else None
    samples = not SAMPLING_SETTINGS.isdisjoint(present)
    fixed = find_fixed_sampling(settings, request.model, effort or "") if samples else ()
    for field in filter(present.__contains__, names.COPIED_SETTINGS):
        key, _ = names.COPIED_SETTINGS[field]
        if field in fixed or key in family.refused or (field in refused and not family.native):
            ledger.note("no-counterpart", settings.where.get(field), f"`{key}` is not accepted here and was left out")
        else:
            out[key] = getattr(settings, field)
    if settings.max_tokens is not None:
        key = key_as_sent(request, names.MAX_TOKENS_KEYS, family.max_tokens_key, family)
        out[key] = settings.max_tokens
        if "max_tokens" in family.refused and settings.where.get("max_tokens") == (None, "max_tokens"):
            what, why = f"`max_tokens` became `{key}`", f"{request.model} refuses `max_tokens`"
            ledger.note("setting-mapped", (None, "max_tokens"), what, why)
    if settings.user is not None:
        write_user(request, settings.user, out, family, ledger)
    if settings.stop is not None:
        write_stop_sequences(request, settings.stop, out, family, ledger)
    if effort is not None:
        out["reasoning_effort"] = effort
    if settings.format is not None:
        out["response_format"] = _write_response_format(settings.format)
    if request.stream or settings.stream_usage is not None or family.native:
        _write_stream_options(request, out, family, ledger)
    ledger.note_unwritten_settings(settings, present, names.SUPPORTED_SETTINGS)


def _write_response_format(form: Format) -> Object:
    if (wire := intact_wire(form.origin)) is not None:
        return wire
    if form.kind == "frames":  # vLLM and SGLang both take this shape
        return {"type": "structural_tag", "structures": form.schema, "triggers": [form.name]}
    if form.kind != "schema":
        return {"type": names.FORMAT_TYPES[form.kind]}
    fields = {"name": form.name or "answer", "description": form.description or None, "schema": form.schema}
    fields["strict"] = form.strict
    return {"type": "json_schema", "json_schema": {key: value for key, value in fields.items() if value is not None}}


def _write_stream_options(request: Request, out: Object, family: Family, ledger: Ledger) -> None:
    wanted = request.settings.stream_usage
    options = unknown_keys(request.origin, "stream_options", names.STREAM_OPTIONS_KEYS)
    if request.stream and wanted is None and not family.native:
        wanted = True
        ledger.note("default-added", None, "the stream was asked to report its usage")
    if wanted is not None and not request.stream and not family.native:
        where = request.settings.where.get("stream_usage")
        ledger.note("no-counterpart", where, "`stream_options` were left out: they need `stream`")
        return
    if wanted is not None:
        options = {"include_usage": wanted, **options}
    if options:
        out["stream_options"] = options
