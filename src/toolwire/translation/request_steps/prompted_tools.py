"""Tools for models and servers without tools: declarations, calls and results become text of the prompt.

`prepare_tools_for_prompt` comes before the other steps, `write_tools_into_prompt` after all of them, right before the
writer. Between the two the request has its tools, with the names that the calls of the answer will have. The same
request always gives the same text, and a turn depends only on those before it, so that prompt caches keep their prefix.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.codec import Constraints
from toolwire.core.ir import (
    CacheBreakpoint,
    Call,
    Format,
    Media,
    Opaque,
    Origin,
    Part,
    Request,
    Result,
    Settings,
    Text,
    Tool,
    ToolChoice,
    Turn,
    document_text,
    replace_fields,
    source_path,
    titled_text,
    with_parts,
    without_wire,
)
from toolwire.core.json_values import Json, encode_text, is_object_text
from toolwire.core.losses import ADDED_ORIGIN, Ledger
from toolwire.core.tool_choice import callable_tools, must_call
from toolwire.tool_formats.prompt_table import GENERIC, PROMPTS, ToolPrompt
from toolwire.tool_formats.prompt_writers import PromptCall, PromptResult
from toolwire.tool_formats.prompts import declare_tools, write_calls
from toolwire.translation.request_steps.turn_content import ERROR_MARK, SYSTEM_ROLES, merge_loaded_tools

MUST_CALL = "You must call at least one function in your next answer."
MUST_CALL_ONE = "You must call the function `{name}` in your next answer, and no other one."
ONE_CALL_AT_MOST = "Call at most one function in an answer."
MAX_STOP_SEQUENCES = 4
"""OpenAI, and servers like it, take no more. The client's own come first."""
MAX_CHECKED = 4_000_000
"""Characters of calls that are written in the model's own format, more than any context window holds. To check that
they are read back takes time, so those after them are written in the generic format, which needs no check."""
_MEDIA_KINDS = frozenset({"image", "file", "audio", "video"})
_MARK = re.compile(r"<[^<>]+>|\[[^\[\]]+\]")
"""The mark with which a call begins in most formats."""


def has_tools_or_calls(request: Request) -> bool:
    """Is there anything to write into the prompt?"""
    return bool(request.tools) or any(type(part) in (Call, Result) for turn in request.turns for part in turn.parts)


# --- before the other steps -------------------------------------------------------------------------------------------


def constraints_for_prompt(constraints: Constraints) -> Constraints:
    """What the provider demands, except of tools and results: it gets none."""
    return replace(
        constraints,
        tool_kinds=frozenset({"function"}),
        has_namespaces=False,
        allows_tools_in_turns=False,
        convert_tool_schema=None,
        convert_strict_schema=None,
        max_tools=lambda model: None,
        result_media_kinds=_MEDIA_KINDS,
        result_error_style="text",
    )


def prepare_tools_for_prompt(request: Request, constraints: Constraints, ledger: Ledger) -> Request:
    """The request with functions only, all of them in its list of tools. Other steps leave what is of the provider's
    own protocol as it is, so tools and calls no longer say where they are from."""
    if ledger.is_same_protocol:
        notes = Ledger("", ledger.target)
        request = merge_loaded_tools(request, constraints, notes)
        ledger.notes |= notes.notes
    tools: list[Tool] = []
    for tool in request.tools:
        if isinstance(tool, Tool):
            tools.append(_without_protocol(tool))
            continue
        name = tool.kind if isinstance(tool, Opaque) else tool.tool
        why = "tools are written into the prompt, and the provider is not asked to run any"
        ledger.note("tool-dropped", source_path(tool), f"the tool `{name}` was left out", why)
    turns = [
        with_parts(turn, [_without_protocol(part) if isinstance(part, (Call, Result)) else part for part in turn.parts])
        for turn in request.turns
    ]
    return replace_fields(request, tools=tuple(tools), turns=tuple(turns))


Node = TypeVar("Node", bound=Tool | Call | Result)


def _without_protocol(node: Node) -> Node:
    origin = node.origin
    if origin is None or origin is ADDED_ORIGIN:
        return node
    return replace(node, origin=Origin("", origin.path, None, intact=False))


# --- after the other steps --------------------------------------------------------------------------------------------


def write_tools_into_prompt(request: Request, prompt: ToolPrompt, constraints: Constraints, ledger: Ledger) -> Request:
    """The request without tools, calls and results, which are text in it."""
    tools = [tool for tool in request.tools if isinstance(tool, Tool)]
    declared = callable_tools(tools, request.choice)
    turns = _TurnWriter(prompt, tools).write_turns(request.turns)
    written = replace_fields(request, tools=(), choice=None, turns=tuple(turns))
    if declared:
        sections = [declare_tools(prompt, declared), *_choice_sentences(request.choice, request.settings)]
        written = _add_to_system(written, "\n\n".join(sections), constraints)
    settings = _prompt_settings(request, prompt, declared, constraints)
    what = f"the tools were written into the prompt, in the format `{prompt.name}`"
    if not declared:
        what = f"earlier calls and results were written as text, in the format `{prompt.name}`"
    ledger.note("tools-prompted", None, what)
    return replace_fields(written, settings=settings)


def _choice_sentences(choice: ToolChoice | None, settings: Settings) -> list[str]:
    sentences: list[str] = []
    if choice is not None and choice.mode == "one" and choice.tools:
        sentences.append(MUST_CALL_ONE.format(name=choice.tools[0].name))
    elif must_call(choice):
        sentences.append(MUST_CALL)
    if settings.parallel is False:
        sentences.append(ONE_CALL_AT_MOST)
    return sentences


def _prompt_settings(
    request: Request, prompt: ToolPrompt, declared: Sequence[Tool], constraints: Constraints
) -> Settings:
    """The settings without `parallel`, with the stop sequences of the format, and with the schema of a call, where the
    server can hold the model to it."""
    settings = request.settings
    own = settings.stop or ()
    stop = tuple(dict.fromkeys((*own, prompt.results.start)))[: max(len(own), MAX_STOP_SEQUENCES)] if declared else own
    where = settings.where if own or not stop else {**settings.where, "stop": ADDED_ORIGIN.path}
    settings = replace(settings, parallel=None, stop=stop or settings.stop, where=where)
    if declared and must_call(request.choice) and constraints.takes_schema_for_calls and settings.format is None:
        schema = _call_schema(declared, request.choice)
        settings = replace(settings, format=Format("schema", schema, "tool_call"))
    elif declared and constraints.takes_frames_for_calls and settings.format is None:
        settings = replace(settings, format=_framed_calls(prompt, declared))
    return settings


def _framed_calls(prompt: ToolPrompt, tools: Sequence[Tool]) -> Format | None:
    """The schema of each tool's arguments, with the text before and after them. None for formats whose arguments are
    not a JSON object, or whose calls do not have a frame each: there a schema would forbid parallel calls."""
    frames: list[Json] = []
    mark = ""
    for tool in tools:
        call = PromptCall(tool.name, "{}")
        one = prompt.write_calls([call])
        begin, braces, end = one.partition("{}")
        found = _MARK.match(begin)
        if not braces or found is None or prompt.write_calls([call, call]).split() != [*one.split(), *one.split()]:
            return None
        mark = found[0]
        frames.append({"begin": begin, "schema": _parameters(tool), "end": end})
    return Format("frames", frames, mark)


def _parameters(tool: Tool) -> Json:
    return tool.parameters if isinstance(tool.parameters, dict) else {"type": "object"}


def _call_schema(tools: Sequence[Tool], choice: ToolChoice | None) -> Json:
    """The schema of `{"name": …, "arguments": …}`, which the reader of bare JSON reads."""
    chosen = {tool.name for tool in choice.tools} if choice is not None and choice.mode == "one" else set()
    shapes: list[Json] = [
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": [tool.name]},
                "arguments": _parameters(tool),
            },
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        for tool in tools
        if not chosen or tool.name in chosen
    ]
    return shapes[0] if len(shapes) == 1 else {"anyOf": shapes}


def _add_to_system(request: Request, text: str, constraints: Constraints) -> Request:
    """The request with a section at the end of its system prompt."""
    if request.system:
        return replace_fields(request, system=join_texts((*request.system, Text(text)), "\n\n"))
    first = request.turns[0] if request.turns else None
    if first is not None and first.role in SYSTEM_ROLES:
        turn = replace_fields(first, parts=join_texts((*first.parts, Text(text)), "\n\n"))
        return replace_fields(request, turns=(turn, *request.turns[1:]))
    if constraints.system_placement == "turns":
        return replace_fields(request, turns=(Turn("system", (Text(text),)), *request.turns))
    return replace_fields(request, system=(Text(text),))


def join_texts(parts: Sequence[Part], between: str) -> tuple[Part, ...]:
    """The parts with neighbouring texts as one: many servers of open models take strings only."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, Text) and isinstance(last, Text):
            cache: CacheBreakpoint = last.cache if part.cache is None else part.cache
            gap = between if last.text and part.text and not last.text.endswith(between) else ""
            joined[-1] = Text(last.text + gap + part.text, cache=cache)
        else:
            joined.append(part)
    return tuple(joined)


# --- turns ------------------------------------------------------------------------------------------------------------


class _TurnWriter(Struct, eq=False):
    """Writes the turns of one conversation, in their order."""

    prompt: ToolPrompt
    tools: Sequence[Tool]
    checked: int = 0
    """Characters of calls that were written so far."""
    count: int = 0
    """How many calls there were so far."""
    calls: dict[str, PromptCall] = {}
    """All calls so far, by id. Gemini's may have none."""
    last_calls: list[PromptCall] = []
    """The last calls without an id, as long as they have no result."""

    def write_turns(self, turns: Sequence[Turn]) -> list[Turn]:
        """The turns with calls and results as text. All results after a turn of the assistant are one turn of the
        user, with what the user says next: the templates of many models demand that roles alternate."""
        written: list[Turn] = []
        batch: list[Turn] = []
        for turn in turns:
            has_results = any(type(part) is Result for part in turn.parts)
            if has_results or (batch and turn.role == "user"):
                batch.append(turn)
                continue
            if batch:
                written.append(self._write_results(batch))
                batch = []
            written.append(self._write_assistant(turn) if turn.role == "assistant" else turn)
        if batch:
            written.append(self._write_results(batch))
        return written

    def _write_assistant(self, turn: Turn) -> Turn:
        calls = [part for part in turn.parts if isinstance(part, Call)]
        if not calls:
            return turn
        written = [
            PromptCall(call.name, _arguments_object(call), call.id, number)
            for number, call in enumerate(calls, self.count)
        ]
        self.count += len(calls)
        self.calls |= {call.id: call for call in written if call.id}
        self.last_calls = [call for call in written if not call.id]
        caches = [call.cache for call in calls if call.cache is not None]
        prompt = self.prompt if self.checked < MAX_CHECKED else PROMPTS[GENERIC]
        text = Text(write_calls(prompt, written, self.tools), cache=caches[-1] if caches else None)
        self.checked += len(text.text)
        parts = (*(part for part in turn.parts if not isinstance(part, Call)), text)
        return replace_fields(turn, parts=join_texts(parts, "\n"))

    def _write_results(self, turns: Sequence[Turn]) -> Turn:
        """One turn of the user: the results in the order of their calls, their media, and then the rest."""
        results = [part for turn in turns for part in turn.parts if isinstance(part, Result)]
        rest = [part for turn in turns for part in turn.parts if not isinstance(part, Result)]
        numbered = sorted(map(self._name_result, results), key=lambda pair: pair[1].number)
        media: list[Media] = []
        texts = [replace(found, text=_result_text(result, media)) for result, found in numbered]
        caches = [result.cache for result in results if result.cache is not None]
        text = Text(self.prompt.results.write(texts), cache=caches[-1] if caches else None)
        parts = join_texts((text, *media, *rest), "\n\n")
        return Turn("user", parts, origin=without_wire(turns[0].origin))

    def _name_result(self, result: Result) -> tuple[Result, PromptResult]:
        call = self.calls.get(result.id)
        if call is None and not result.id:
            call = next((call for call in self.last_calls if call.name == result.name), None)
            self.last_calls = [other for other in self.last_calls if other is not call]
        if call is None:
            return result, PromptResult("", result.name, result.id, self.count)
        return result, PromptResult("", call.name, call.id, call.number)


def _arguments_object(call: Call) -> str:
    """The arguments as a JSON object. Those that are none are shown to the model as they are."""
    if is_object_text(call.arguments):
        return call.arguments
    return encode_text({"arguments": call.arguments}) if call.arguments.strip() else "{}"


def _result_text(result: Result, media: list[Media]) -> str:
    """The text of a result. Its media are added to the list, and the text says where they belong."""
    lines: list[str] = []
    for part in result.content:
        if isinstance(part, Text):
            lines.append(part.text)
        elif isinstance(part, Media):
            text = document_text(part)
            if text is not None:
                lines.append(titled_text(part.name, text))
                continue
            media.append(part)
            lines.append(f"[{part.kind} {len(media)}, see below]")
    text = "\n".join(lines)
    return f"{ERROR_MARK}{text}" if result.error and not text.startswith(ERROR_MARK) else text
