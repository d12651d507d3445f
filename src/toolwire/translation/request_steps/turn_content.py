"""Steps on the content of turns: system prompts, failed results, media in results, empty text, loaded tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain, takewhile
from operator import attrgetter
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Constraints
from toolwire.core.ir import (
    AnyTool,
    Call,
    Media,
    Opaque,
    Part,
    Reasoning,
    Request,
    Result,
    Summary,
    Text,
    Tool,
    ToolReference,
    ToolsAdded,
    Turn,
    document_text,
    is_same,
    replace_fields,
    source_path,
    summarise_media,
    titled_text,
    with_fields,
    with_parts,
    with_turns,
)
from toolwire.core.losses import Ledger
from toolwire.core.response_format import schema_instruction
from toolwire.translation.options import Options

# --- instructions -----------------------------------------------------------------------------------------------------

CONTINUE = "Continue."
"""The text of a user turn that is added: before the first turn of the assistant, after instructions alone, or instead
of an empty one."""
SYSTEM_ROLES = frozenset({"system", "developer"})
_ROLE_OF, _PARTS_OF = attrgetter("role"), attrgetter("parts")


def place_system_prompt(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with its instructions where the target takes them: outside the turns, or in the first turn."""
    if constraints.system_placement == "turns":
        if not request.system:
            return request
        return replace_fields(request, system=(), turns=(Turn("system", request.system), *request.turns))
    if ledger.is_same_protocol:
        return request
    rest = request.turns
    leading = [*takewhile(lambda turn: turn.role in SYSTEM_ROLES, rest)]
    top = [*chain.from_iterable(map(_PARTS_OF, leading))]
    if constraints.system_placement == "both":
        is_plain_text = all(isinstance(part, Text) and part.cache is None for part in top)
        if not is_plain_text or len(leading) == len(rest):
            return request if rest or not request.system else _system_as_turn(request, ledger)
    if leading:
        for turn in leading:
            if turn.name:
                ledger.note("no-counterpart", source_path(turn), f"the name `{turn.name}` of a turn was left out")
        rest = rest[len(leading) :]
        request = replace_fields(request, system=(*request.system, *top), turns=rest)
    if not SYSTEM_ROLES.isdisjoint(map(_ROLE_OF, rest)):
        model = request.model
        turns = [_map_mid_system_turn(number, rest, constraints, model, ledger) for number in range(len(rest))]
        return with_turns(request, turns)
    return request


def _system_as_turn(request: Request, ledger: Ledger) -> Request:
    """Instructions without any turn, as a turn: OpenAI answers to instructions alone only where they are input."""
    ledger.note("system-moved", source_path(request.system[0]), "the instructions became a message: there is no other")
    return replace_fields(request, system=(), turns=(Turn("system", request.system),))


def _map_mid_system_turn(
    number: int, turns: tuple[Turn, ...], constraints: Constraints, model: str, ledger: Ledger
) -> Turn:
    """A system turn in the middle becomes a user turn. Newer Anthropic models take one between user and assistant."""
    turn = turns[number]
    if turn.role not in SYSTEM_ROLES or constraints.mid_system_turns == "keep":
        return turn
    before = turns[number - 1].role if number else ""
    after = turns[number + 1].role if number + 1 < len(turns) else "assistant"
    accepted = constraints.mid_system_turns == "by_model" and constraints.mid_system_turn_models.search(model)
    if accepted and before == "user" and after == "assistant":
        return turn if turn.role == "system" else replace_fields(turn, role="system")
    what = f"an instruction in the middle (role `{turn.role}`) became a user turn"
    ledger.note("role-mapped", source_path(turn), what)
    return replace_fields(turn, role="user")


JSON_INSTRUCTION = "Answer with JSON."


def fit_response_format(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with a schema of the answer that the target accepts. Where the answer is not an object, which OpenAI
    requires, the schema becomes an instruction."""
    form, convert = request.settings.format, constraints.convert_format_schema
    if form is None or form.schema is None or form.strict or convert is None or ledger.is_same_protocol:
        return request
    where, converted = request.settings.where.get("format"), convert(form.schema, request.model)
    if converted.schema is form.schema:
        return request
    if converted.wrapper_property:
        ledger.note("format-mapped", where, "the schema of the answer became an instruction", "it is not an object")
        request = replace_fields(request, settings=replace(request.settings, format=None))
        return _add_instruction(request, schema_instruction(form.schema), constraints)
    for change in converted.changes:
        what = f"the schema of the answer at {change.pointer or 'its root'}: {change.what}"
        ledger.note("schema-rewritten", where, what)
    form = replace_fields(form, schema=converted.schema)
    return replace_fields(request, settings=replace(request.settings, format=form))


def mention_json(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with an instruction that says "JSON": OpenAI refuses JSON mode without the word."""
    format = request.settings.format
    if format is None or format.kind != "json" or not constraints.json_mode_needs_word or ledger.is_same_protocol:
        return request
    # Only the first turns are searched, so that the result stays the same while the conversation grows.
    first = next((n for n, turn in enumerate(request.turns) if turn.role not in SYSTEM_ROLES), 0)
    parts = [*request.system, *(part for turn in request.turns[: first + 1] for part in turn.parts)]
    if any(isinstance(part, Text) and "json" in part.text.lower() for part in parts):
        return request
    ledger.note("turn-added", request.settings.where.get("format"), f"the instruction `{JSON_INSTRUCTION}` was added")
    return _add_instruction(request, JSON_INSTRUCTION, constraints)


def _add_instruction(request: Request, text: str, constraints: Constraints) -> Request:
    if request.system and constraints.system_placement != "turns":
        return replace_fields(request, system=(*request.system, Text(text)))
    head = request.turns[:1] if request.turns and request.turns[0].role == "system" else ()
    return replace_fields(request, turns=(*head, Turn("system", (Text(text),)), *request.turns[len(head) :]))


# --- results ----------------------------------------------------------------------------------------------------------


def mark_failed_results(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with failed results marked by a flag (Anthropic `is_error`), or at the start of the text."""
    if ledger.is_same_protocol:
        return request
    mark = _flag_to_text if constraints.result_error_style == "text" else _text_to_flag
    turns = [
        with_parts(turn, [mark(part, ledger) if isinstance(part, Result) else part for part in turn.parts])
        for turn in request.turns
    ]
    return with_turns(request, turns)


def _flag_to_text(result: Result, ledger: Ledger) -> Result:
    if not result.error:
        return result
    ledger.note("error-marked", source_path(result), "the failed result is marked at the start of its text")
    first = result.content[0] if result.content else None
    if isinstance(first, Text):
        if first.text.startswith(ERROR_MARK):
            return replace_fields(result, error=None)
        content = (replace_fields(first, text=ERROR_MARK + first.text), *result.content[1:])
    else:
        content = (Text(ERROR_MARK.rstrip()), *result.content)
    return replace_fields(result, content=content, error=None, value=None)


def _text_to_flag(result: Result, ledger: Ledger) -> Result:
    first = result.content[0] if result.content else None
    if result.error is not None or not isinstance(first, Text) or not first.text.startswith(ERROR_MARK):
        return result
    ledger.note("error-marked", source_path(result), "the mark of a failed result became an error flag")
    rest = first.text[len(ERROR_MARK) :]
    content = (replace_fields(first, text=rest), *result.content[1:])
    return replace_fields(result, content=content, error=True)


_SUMMARY_WISH = "the option `binary_results` is `summary`"


def drop_summarised_media(request: Request, ledger: Ledger) -> Request:
    """The request without media beside a result whose text stands for them already: clients of older Gemini models
    send them so."""
    turns: list[Turn] = []
    for turn in request.turns:
        results = [part for part in turn.parts if type(part) is Result]
        said = {item.text for result in results for item in result.content if isinstance(item, Text)}
        media = [part for part in turn.parts if isinstance(part, Media) and summarise_media(part) in said]
        for part in media:
            ledger.note("media-summarised", source_path(part), "media beside a result were left out", _SUMMARY_WISH)
        turns.append(with_parts(turn, [part for part in turn.parts if not any(part is one for one in media)]))
    return with_turns(request, turns)


def move_result_media(request: Request, constraints: Constraints, options: Options, ledger: Ledger) -> Request:
    """The request with media of results in a user turn after them, where the target needs it (Chat), or as text.
    Within one protocol they stay: some servers of Chat take them, although OpenAI's specification does not."""
    if ledger.is_same_protocol and options.binary_results != "summary":
        return request
    turns: list[Turn] = []
    moved: list[Part] = []
    for turn in request.turns:
        holds_results = any(type(part) is Result for part in turn.parts)
        if moved and not holds_results:
            turns.append(Turn("user", tuple(moved)))
            moved = []
        if holds_results:
            turn = with_parts(turn, [_move_media(part, constraints, options, ledger, moved) for part in turn.parts])
        turns.append(turn)
    if moved:
        turns.append(Turn("user", tuple(moved)))
    return with_turns(request, turns)


def _move_media(result: Part, constraints: Constraints, options: Options, ledger: Ledger, moved: list[Part]) -> Part:
    if not isinstance(result, Result) or Media not in map(type, result.content):
        return result
    summary = options.binary_results == "summary"
    content: list[Part] = []
    for part in result.content:
        if not isinstance(part, Media) or (part.kind in constraints.result_media_kinds and not summary):
            content.append(part)
            continue
        if not summary and (text := document_text(part)) is not None:
            ledger.note("media-as-text", source_path(part), f"a file of type `{part.mime}` in a result became text")
            content.append(Text(titled_text(part.name, text), cache=part.cache))
            continue
        content.append(Text(summarise_media(part)))
        if summary:
            ledger.note("media-summarised", source_path(part), "media in a result became a line of text", _SUMMARY_WISH)
            continue
        what = "media in a result were moved into a user turn and replaced by a line of text"
        ledger.note("media-moved", source_path(part), what)
        moved.extend((Text(f"[Returned by the call {result.id}]"), part))
    return result if is_same(content, result.content) else replace_fields(result, content=tuple(content), value=None)


# --- empty text -------------------------------------------------------------------------------------------------------


def drop_empty_text(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request without empty text, which Anthropic refuses; elsewhere without the model's, which means nothing: the
    streams of Gemini end in an empty part."""
    if constraints.allows_empty_text:
        return request if ledger.is_same_protocol else _drop_empty_model_text(request)
    turns = [
        with_parts(
            turn, [_drop_empty_in_result(part, ledger) for part in turn.parts if not _is_empty_text(part, ledger)]
        )
        for turn in request.turns
    ]
    kept = [turn for turn in turns if turn.parts or turn.role not in ("user", "assistant", "system", "developer")]
    system = tuple(part for part in request.system if not _is_empty_text(part, ledger))
    is_last_empty = bool(turns) and turns[-1].role == "user" and not turns[-1].parts
    is_all_empty = not kept and not system and bool(turns or request.system)
    if (is_last_empty or is_all_empty) and not ledger.is_same_protocol:
        where = source_path(turns[-1] if turns else request.system[0])
        ledger.note("turn-added", where, f"a user turn `{CONTINUE}` was added, because the last turn is empty")
        kept.append(Turn("user", (Text(CONTINUE),)))
    return with_fields(request, system=system, turns=tuple(kept))


def _drop_empty_model_text(request: Request) -> Request:
    turns: list[Turn] = []
    for turn in request.turns:
        if turn.role == "assistant" and (not turn.parts or any(map(_says_nothing, turn.parts))):
            turn = with_parts(turn, [part for part in turn.parts if not _says_nothing(part)])
            if not turn.parts:
                continue
        turns.append(turn)
    return with_turns(request, turns)


def _says_nothing(part: Part) -> bool:
    return isinstance(part, Text) and not part.text and part.seal is None and not part.citations


def _drop_empty_in_result(part: Part, ledger: Ledger) -> Part:
    if not isinstance(part, Result) or part.value is not None:
        return part
    return with_fields(part, content=tuple(item for item in part.content if not _is_empty_text(item, ledger)))


def _is_empty_text(part: Part, ledger: Ledger) -> bool:
    if not isinstance(part, Text) or (part.text and not part.text.isspace()):
        return False
    if part.text and ledger.is_same_protocol:
        # The provider may have written it itself, and signed the turn.
        return False
    if part.text:
        ledger.note("empty-omitted", source_path(part), "text of only white space was left out")
    elif ledger.is_same_protocol:
        # Without a note the client's own bytes would be sent.
        ledger.note("empty-omitted", source_path(part), "an empty text was left out")
    return True


# --- loaded tools -----------------------------------------------------------------------------------------------------


def merge_loaded_tools(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with tools from the conversation in its list of tools, where the target has only that list."""
    if constraints.allows_tools_in_turns or ledger.is_same_protocol:
        return request
    tools: dict[tuple[str, str], AnyTool] = {}
    loaded: set[str] = set()
    turns = []
    for turn in request.turns:
        parts = tuple(_merge_tools_of_part(part, tools, loaded, ledger) for part in turn.parts)
        rest = tuple(part for part in parts if not isinstance(part, ToolsAdded))
        if rest or not parts:
            turns.append(with_parts(turn, rest))
    if constraints.binds_reasoning_to_tools(request.model):
        # Thinking from before tools were loaded is bound to the shorter list of then.
        numbers = [number for number, turn in enumerate(request.turns) if any(map(_loads_tools, turn.parts))]
        turns = drop_reasoning_of(turns, request.turns[: max(numbers, default=0)], ledger)
    known = {(tool.namespace, tool.name) for tool in request.tools if isinstance(tool, Tool)}
    new = tuple(tool for key, tool in tools.items() if key not in known)
    old: list[AnyTool] = []
    for tool in request.tools:
        if isinstance(tool, Tool) and tool.defer and tool.name in loaded:
            ledger.note("tools-merged", source_path(tool), f"`{tool.name}` was loaded and is no longer deferred")
            tool = replace_fields(tool, defer=None)
        old.append(tool)
    return replace_fields(request, turns=tuple(turns), tools=(*old, *new))


def drop_reasoning_without_tools(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request without thinking that is bound to tools which are gone: for a summary, some clients send no tools."""
    if request.tools or ledger.is_same_protocol or not constraints.binds_reasoning_to_tools(request.model):
        return request
    if not any(isinstance(part, Call) for turn in request.turns for part in turn.parts):
        return request
    return with_turns(request, drop_reasoning_of(request.turns, request.turns, ledger))


def drop_reasoning_of(turns: Sequence[Turn], earlier_turns: Sequence[Turn], ledger: Ledger) -> list[Turn]:
    """The turns without the thinking in `earlier_turns`, for models that bind it to the tools of that time."""
    dropped = {id(part) for turn in earlier_turns for part in turn.parts if isinstance(part, Reasoning)}
    kept: list[Turn] = []
    for turn in turns:
        parts = tuple(part for part in turn.parts if id(part) not in dropped)
        if len(parts) < len(turn.parts):
            why = "it is bound to the tools of that time"
            ledger.note("reasoning-dropped", source_path(turn), "thinking was left out", why)
            turn = replace_fields(turn, parts=parts)
        if parts or not turn.parts:
            kept.append(turn)
    return kept


def _loads_tools(part: Part) -> bool:
    items = part.content if isinstance(part, Result) else (part,)
    return any(isinstance(item, (ToolsAdded, ToolReference)) for item in items)


def _merge_tools_of_part(part: Part, tools: dict[tuple[str, str], AnyTool], loaded: set[str], ledger: Ledger) -> Part:
    if isinstance(part, ToolsAdded):
        loaded.update(_collect_tools(part, tools, ledger))
        return part
    if not isinstance(part, Result) or not _loads_tools(part):
        return part
    content: list[Part] = []
    for item in part.content:
        if isinstance(item, ToolsAdded):
            names = _collect_tools(item, tools, ledger)
            loaded.update(names)
            content.append(Text(f"Tools found: {', '.join(names)}" if names else "No tools found."))
        elif isinstance(item, ToolReference):
            loaded.add(item.name)
            ledger.note("tools-merged", source_path(item), f"the reference to `{item.name}` became text")
            content.append(Text(f"Tool found: {item.name}"))
        else:
            content.append(item)
    return replace_fields(part, content=tuple(content), value=None)


def _collect_tools(part: ToolsAdded, tools: dict[tuple[str, str], AnyTool], ledger: Ledger) -> list[str]:
    for number, tool in enumerate(part.tools):
        key = (tool.namespace, tool.name) if isinstance(tool, Tool) else ("", f"#{len(tools)}.{number}")
        tools.setdefault(key, replace_fields(tool, defer=None) if isinstance(tool, Tool) and tool.defer else tool)
    ledger.note("tools-merged", source_path(part), "tools added in the conversation were moved to the list of tools")
    return [tool.name for tool in part.tools if isinstance(tool, Tool)]


# --- what a request contains, found in one pass, so that only those steps run that have something to do ---------------

ERROR_MARK = "[tool error] "
"""The start of a failed result where the protocol has no error flag."""
RareFeature: TypeAlias = Literal[
    "seals", "blank text", "media results", "failed results", "loaded tools", "summaries", "phases"
]
_RARE_PARTS: Mapping[type, RareFeature] = {Reasoning: "seals", ToolsAdded: "loaded tools", Summary: "summaries"}


class RequestFeatures(Struct):
    calls: list[Call] = []
    results: list[Result] = []
    names: set[str] = set()
    """Tool names of calls and results."""
    kinds: set[str] = set()
    """Kinds of calls and results."""
    has_namespaces: bool = False
    rare: set[RareFeature] = set()
    """What some step must handle; most requests have none of it."""
    phased_turns: list[Turn] = []

    def add_turns(self, turns: tuple[Turn, ...]) -> None:
        for turn in turns:
            if turn.phase:
                self.rare.add("phases")
                self.phased_turns.append(turn)
            for part in turn.parts:
                kind = type(part)
                if kind is Text:
                    text = part.text  # type: ignore[union-attr]
                    if not text or text.isspace():
                        self.rare.add("blank text")
                    if part.seal is not None:  # type: ignore[union-attr]
                        self.rare.add("seals")
                elif kind is Call:
                    self._add_call(part)  # type: ignore[arg-type]
                elif kind is Result:
                    self._add_result(part)  # type: ignore[arg-type]
                elif kind in _RARE_PARTS:
                    self.rare.add(_RARE_PARTS[kind])

    def _add_call(self, call: Call) -> None:
        self.calls.append(call)
        self.names.add(call.name)
        self.kinds.add(call.kind)
        if call.namespace:
            self.has_namespaces = True
        if call.seal is not None:
            self.rare.add("seals")

    def _add_result(self, result: Result) -> None:
        self.results.append(result)
        self.kinds.add(result.kind)
        if result.name:
            self.names.add(result.name)
        if result.error:
            self.rare.add("failed results")
        for part in result.content:
            kind = type(part)
            if kind is Text:
                text = part.text  # type: ignore[union-attr]
                if not text or text.isspace():
                    self.rare.add("blank text")
                elif text.startswith(ERROR_MARK):
                    self.rare.add("failed results")
            elif kind is Media or kind is Opaque:
                self.rare.add("media results")
            elif kind is ToolsAdded or kind is ToolReference:
                self.rare.add("loaded tools")


def request_features(request: Request) -> RequestFeatures:
    features = RequestFeatures()
    features.add_turns(request.turns)
    if () in map(_PARTS_OF, request.turns):
        features.rare.add("blank text")
    return features
