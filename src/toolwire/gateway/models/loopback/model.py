"""The embedded model: it answers in any protocol without a provider, and the same request always in the same way.

It calls the tools that the user's text resembles, with arguments from that text, and repeats the results.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core import ir, tokens
from toolwire.core.codec import Codec, WriteContext
from toolwire.core.envelopes import EMPTY_ENVELOPE
from toolwire.core.errors import failure_kind_for_status
from toolwire.core.events import ArgumentsDelta, Event, ResponseFailed, ResponseStart, TextDelta, unfold
from toolwire.core.ids import derive_id, hex_digest
from toolwire.core.json_values import Malformed, decode, encode, encode_text, expect_object
from toolwire.core.losses import Ledger
from toolwire.gateway.http.messages import ReadyResponse
from toolwire.gateway.models.loopback.tool_calls import PlannedCall, find_values, make_arguments, make_value, plan_calls
from toolwire.schema.keywords import short_json
from toolwire.translation.mistaken_protocol import read_request, refuse_foreign_members

MODEL_NAME = "loopback"
_MAX_CHOICES = 8


def answer_request(codec: Codec, body: bytes, model: str, stream: bool, now: int, salt: str = "") -> ReadyResponse:
    """The answer to a request of this protocol; `model` is the name that the client asked for. The same request and
    salt give the same ids."""
    try:
        request = read_request(codec, expect_object(decode(body), None))
        refuse_foreign_members(codec, request)
    except (Malformed, RecursionError) as error:
        what = str(error) if isinstance(error, Malformed) else "the JSON is nested too deeply"
        return _refuse(codec, ir.Failure("invalid", what, 400))
    prompt = read_prompt(request)
    order = _read_failure_order(prompt.text)
    if isinstance(order, ir.Failure) and not (stream and order.code == _BROKEN_CODE):
        return _refuse(codec, order)
    if order:
        prompt = replace(prompt, text=_FAILURE_ORDER.sub("", prompt.text).strip())
    seed = hex_digest(repr(ir.strip_origins(request.turns)) + salt, 24)
    response = replace(_make_response(request, prompt, codec, seed), model=model, created=now)
    context = WriteContext(request, now, seed)
    if not stream:
        body = encode(codec.write_response(response, Ledger(codec.name, codec.name), context))
        body = body[: len(body) // 2] if order == _CUT_ORDER else body
        return ReadyResponse(200, {"content-type": "application/json"}, deque([body]))
    events = list(_split_events(response))
    if isinstance(order, ir.Failure):
        events[len(events) // 2 :] = [ResponseFailed(order)]
    writer = codec.make_stream_writer(Ledger(codec.name, codec.name), context)
    pieces = [piece for piece in (*map(writer.write, events), writer.close()) if piece]
    if order == _CUT_ORDER:
        pieces = pieces[: len(pieces) // 2]
    return ReadyResponse(200, {"content-type": codec.http.framing.content_type}, deque(pieces))


def _refuse(codec: Codec, failure: ir.Failure) -> ReadyResponse:
    error = codec.write_error(failure)
    headers = {**error.headers, "content-type": "application/json"}
    return ReadyResponse(error.status, headers, deque([encode(error.body)]))


# --- failures on request ---

_FAILURE_ORDER = re.compile(
    r"\bloopback:\s*(?:fail\s+(?P<status>[45]\d\d)(?:\s+retry after\s+(?P<wait>\d{1,6}(?:\.\d{1,3})?))?"
    r"|(?P<word>overflow|cut|break)\b)",
    re.IGNORECASE,
)
_CUT_ORDER = "cut"
_BROKEN_CODE = "loopback_broken"
_ORDERED_FAILURES: Mapping[str, ir.Failure] = {
    "overflow": ir.Failure("context", "prompt is too long (loopback was asked for this failure)", 400),
    "break": ir.Failure("server", "loopback was asked to break in the middle", 500, _BROKEN_CODE),
}


def _read_failure_order(text: str) -> ir.Failure | str | None:
    order = _FAILURE_ORDER.search(text)
    if order is None:
        return None
    if order["word"]:
        return _ORDERED_FAILURES.get(order["word"].lower(), _CUT_ORDER)
    status, wait = int(order["status"]), order["wait"]
    message = f"loopback was asked to fail with {status}"
    return ir.Failure(failure_kind_for_status(status), message, status, retry_after=float(wait) if wait else None)


# --- the answer ---


def _make_response(request: ir.Request, prompt: Prompt, codec: Codec, seed: str) -> ir.Response:
    """The answer; its ids are derived from the seed."""
    calls = _plan_calls(request, prompt)
    count = min(request.settings.count or 1, _MAX_CHOICES)
    choices = tuple(_make_choice(request, prompt, calls, codec, f"{seed}|{index}", index) for index in range(count))
    parts = [part for choice in choices for part in choice.parts]
    texts = (part.arguments if isinstance(part, ir.Call) else getattr(part, "text", "") for part in parts)
    output = sum(len(text) // 4 + 1 for text in texts)
    reasoning = sum(len(part.text) for part in parts if isinstance(part, ir.Reasoning)) // 4
    usage = ir.Usage(tokens.estimate_tokens(request), output, reasoning=reasoning or None)
    return ir.Response("", request.model, None, choices, usage)


def _make_choice(
    request: ir.Request, prompt: Prompt, calls: list[PlannedCall], codec: Codec, seed: str, index: int
) -> ir.Choice:
    parts: list[ir.Part] = []
    if _shows_reasoning(request.settings):
        slots = codec.constraints.seal_slots
        # Anthropic refuses thinking without a signature, so it gets one that says that it is empty.
        seal = ir.Seal(codec.name, EMPTY_ENVELOPE) if "reasoning" in slots and "call" not in slots else None
        parts.append(ir.Reasoning(reasoning_text(prompt, [one.tool for one in calls]), "summary", seal=seal))
    if calls:
        parts += [_make_call(one, derive_id("call_", seed, position)) for position, one in enumerate(calls)]
        return ir.Choice(index, tuple(parts), ir.Finish("calls"))
    text, finish = _apply_limits(_make_text(request, prompt), request.settings)
    return ir.Choice(index, (*parts, ir.Text(text)), finish)


def _shows_reasoning(settings: ir.Settings) -> bool:
    thinking = settings.thinking
    if thinking is None or "none" in (thinking.effort, thinking.summary):
        return False
    is_off = thinking.mode == "off" or thinking.budget == 0
    return not is_off and (thinking.mode in ("on", "auto") or bool(thinking.effort or thinking.budget))


def _make_text(request: ir.Request, prompt: Prompt) -> str:
    form = request.settings.format
    if form is None or form.kind == "text":
        return reply_text(prompt, [tool.name for tool in prompt.tools])
    if form.kind == "schema" and form.schema is not None:
        return encode_text(make_value(form.schema, find_values(prompt.known_text)))
    return encode_text({"model": MODEL_NAME, "answer": reply_text(prompt, [])})


def _apply_limits(text: str, settings: ir.Settings) -> tuple[str, ir.Finish]:
    """The text up to the first stop sequence and the limit of tokens, four characters each."""
    found = [(text.find(stop), stop) for stop in settings.stop or () if stop and stop in text]
    finish = ir.Finish("stop")
    if found:
        end, stop = min(found)
        text, finish = text[:end], ir.Finish("sequence", sequence=stop)
    limit = settings.max_tokens
    if limit is not None and len(text) > 4 * limit:
        text, finish = text[: 4 * max(limit, 0)], ir.Finish("length")
    return text, finish


def _plan_calls(request: ir.Request, prompt: Prompt) -> list[PlannedCall]:
    """The calls of this answer; none if the last turn has results, or if the text resembles no tool."""
    choice = request.choice
    mode = choice.mode if choice is not None else "auto"
    tools = [tool for tool in prompt.tools if tool.name not in prompt.called_tools or prompt.has_only_loaded_tools]
    if mode == "none" or not prompt.needs_answer:
        return []
    if choice is not None and choice.tools:
        # By name and not by kind: Gemini and Anthropic do not tell the kinds apart.
        names = {(one.namespace, one.name) for one in choice.tools} | {("", one.name) for one in choice.tools}
        kinds = {one.kind for one in choice.tools if not one.name}
        tools = [t for t in tools if (t.namespace, t.name) in names or ("", t.name) in names or t.kind in kinds]
    is_required = mode in ("required", "one") or (choice is not None and choice.required)
    if prompt.results and not is_required and not prompt.has_only_loaded_tools:
        return []
    return plan_calls(tools, find_values(prompt.known_text), is_required, request.settings.parallel is not False)


def _make_call(planned: PlannedCall, id: str) -> ir.Call:
    tool = planned.tool
    if tool.kind == "custom":  # takes any text: a quoted one, else the whole prompt
        quoted = (*planned.values.get_values("fenced"), *planned.values.get_values("quoted"))
        arguments = next(iter(quoted), planned.values.text.strip() or "example")
    else:
        arguments = encode_text(make_arguments(tool.parameters, planned.values))
    return ir.Call(id, tool.name, arguments, tool.kind, tool.namespace)


_TEXT_PIECE = re.compile(r"\s*\S+\s*$|\s*\S+|\s+$")
_FRAGMENT_LENGTH = 12


def _split_events(response: ir.Response) -> Iterator[Event]:
    """The events of an answer: text word by word and arguments in fragments, as real models send them."""
    usage = response.usage
    for event in unfold(response):
        if isinstance(event, TextDelta):
            for piece in _TEXT_PIECE.findall(event.text):
                yield TextDelta(event.index, piece)
        elif isinstance(event, ArgumentsDelta):
            for start in range(0, len(event.text), _FRAGMENT_LENGTH):
                yield ArgumentsDelta(event.index, event.text[start : start + _FRAGMENT_LENGTH])
        elif isinstance(event, ResponseStart) and usage is not None:
            yield replace(event, usage=ir.Usage(usage.input))
        else:
            yield event


# --- the user's prompt as the model reads it, and the sentences that it answers ---


_ECHO_LENGTH = 300
"""Longer texts and results are repeated up to this length."""
_TAGGED_BLOCK = re.compile(r"^<([\w-]+)[^>]*>.*?</\1>\s*", re.DOTALL | re.MULTILINE)
"""Agents such as Claude Code and Codex put instructions and context in such blocks into the user's message."""
_BLOCK_SEARCH_LIMIT = 50_000
"""Longer texts are not searched for blocks, because it takes quadratic time."""


class Prompt(Struct, frozen=True):
    text: str = ""
    """The user's text since the model's last turn, or else the last one before."""
    media: tuple[ir.Media, ...] = ()
    results: tuple[ir.Result, ...] = ()
    tools: tuple[ir.Tool, ...] = ()
    called_tools: frozenset[str] = frozenset()
    result_tool_names: tuple[str, ...] = ()
    has_only_loaded_tools: bool = False
    """Whether the results only load tools, so that there is nothing to tell yet."""
    needs_answer: bool = True
    """False if the conversation ends with a turn of the model."""

    @property
    def known_text(self) -> str:
        """The user's text and the start of each result."""
        return "\n".join([self.text, *(ir.plain_text(result.content)[:1000] for result in self.results)])


def read_prompt(request: ir.Request) -> Prompt:
    turns = request.turns
    last = max((number for number, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    new = turns[last + 1 :]
    results = tuple(part for turn in new for part in turn.parts if isinstance(part, ir.Result))
    start = max((number for number, turn in enumerate(turns) if _has_user_input(turn)), default=0)
    asking = new if any(map(_has_user_input, new)) else turns[start : start + 1]
    user_turns = [turn for turn in asking if turn.role == "user"]
    text = "\n".join(text for turn in user_turns if (text := _user_text(turn)))
    calls = {part.id: part.name for turn in turns for part in turn.parts if isinstance(part, ir.Call)}
    loaded = [
        part for result in results for part in result.content if isinstance(part, (ir.ToolsAdded, ir.ToolReference))
    ]
    return Prompt(
        text or "\n".join(ir.plain_text(turn.parts) for turn in user_turns).strip(),
        tuple(part for turn in new if turn.role == "user" for part in turn.parts if isinstance(part, ir.Media)),
        results,
        tuple(_callable_tools(request, loaded)),
        frozenset(part.name for turn in turns[start:] for part in turn.parts if isinstance(part, ir.Call)),
        tuple(result.name or calls.get(result.id, "") or "a tool" for result in results),
        bool(loaded) and all(any(part in loaded for part in result.content) for result in results),
        bool(new),
    )


def _has_user_input(turn: ir.Turn) -> bool:
    return turn.role == "user" and bool(_user_text(turn) or any(isinstance(part, ir.Media) for part in turn.parts))


def _user_text(turn: ir.Turn) -> str:
    """The user's own text, without the blocks that agents add."""
    texts = []
    for text in (part.text for part in turn.parts if isinstance(part, ir.Text)):
        has_blocks = "</" in text and len(text) <= _BLOCK_SEARCH_LIMIT
        texts.append((_TAGGED_BLOCK.sub("", text) if has_blocks else text).strip())
    return "\n".join(filter(None, texts))


def _callable_tools(request: ir.Request, loaded_parts: Sequence[ir.Part]) -> Iterator[ir.Tool]:
    """The tools that the new results loaded, or else all tools except deferred ones that were never loaded."""
    parts = [part for turn in request.turns for part in turn.parts]
    parts += [inner for part in parts if isinstance(part, ir.Result) for inner in part.content]
    added = [tool for part in parts if isinstance(part, ir.ToolsAdded) for tool in part.tools]
    known = [tool for tool in (*request.tools, *added) if isinstance(tool, ir.Tool)]
    loaded = {part.name for part in parts if isinstance(part, ir.ToolReference)}
    loaded |= {tool.name for tool in added if isinstance(tool, ir.Tool)}
    if loaded_parts:
        names = {part.name for part in loaded_parts if isinstance(part, ir.ToolReference)}
        new = [tool for part in loaded_parts if isinstance(part, ir.ToolsAdded) for tool in part.tools]
        known = [tool for tool in known if tool in new or tool.name in names]
    return (tool for tool in known if not tool.defer or tool.name in loaded)


def reasoning_text(prompt: Prompt, tools: Sequence[ir.Tool]) -> str:
    if tools:
        return f"The text resembles {' and '.join(dict.fromkeys(tool.name for tool in tools))}, so I call it."
    if prompt.results:
        return "The results are there, so I tell what they say."
    return "No tool is asked for, so I answer in words."


def reply_text(prompt: Prompt, tools: Sequence[str]) -> str:
    """The results of the tools, or else the user's text and a hint."""
    media = [f"I see {', '.join(map(_describe_media, prompt.media))}."] if prompt.media else []
    if prompt.results:
        return "\n".join([*map(_result_text, prompt.result_tool_names, prompt.results), *media])
    lines = [f"You said: {_shorten_text(prompt.text)}" if prompt.text else "You said nothing.", *media]
    lines.append("This is loopback, the model built into Toolwire: it calls your tools and repeats what it hears.")
    if tools:
        more = f" and {len(tools) - 8} more" if len(tools) > 8 else ""
        lines.append(f"Name a tool to have it called: {', '.join(tools[:8])}{more}.")
    lines.append("For a real model, set a provider's key or name one in toolwire.toml.")
    return "\n".join(lines)


def _result_text(name: str, result: ir.Result) -> str:
    is_json = isinstance(result.value, (dict, list))
    text = short_json(result.value, _ECHO_LENGTH) if is_json else _shorten_text(ir.plain_text(result.content))
    media = [_describe_media(part) for part in result.content if isinstance(part, ir.Media)]
    said = " and ".join(filter(None, [text, *media])) or "nothing"
    return f"{name} {'failed' if result.error else 'said'}: {said}"


def _describe_media(media: ir.Media) -> str:
    size = f"{len(media.data) * 3 // 4 - media.data[-2:].count('=')} bytes" if media.data else ""
    details = ", ".join(word for word in (media.name, media.mime, size) if word)
    return f"1 {media.kind} ({details})" if details else f"1 {media.kind}"


def _shorten_text(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _ECHO_LENGTH else f"{text[: _ECHO_LENGTH - 1]}…"
