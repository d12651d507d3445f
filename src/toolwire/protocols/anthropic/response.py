"""Whole answers, and what streams share with them: the stop reason and the usage."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw, Struct

from toolwire.core.codec import ResponsePeek, WriteContext
from toolwire.core.errors import expect_answer
from toolwire.core.ids import derive_id
from toolwire.core.ir import (
    EMPTY_MAPPING,
    Choice,
    Citation,
    Finish,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Refusal,
    Request,
    Response,
    Text,
    Usage,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Malformed,
    Object,
    Path,
    expect_text,
    find_count,
    get_list,
    get_object,
    get_text,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, partial_decoder, restore_original_keys
from toolwire.protocols.anthropic import names
from toolwire.protocols.anthropic.content import ResponseReadContext, read_content, write_parts
from toolwire.protocols.anthropic.errors import read_error, write_error
from toolwire.protocols.anthropic.names import NAME, intact_wire, is_foreign, is_own

_CONTENT_PATH: Path = (None, "content")
_USAGE_PATH: Path = (None, "usage")


# --- reading ----------------------------------------------------------------------------------------------------------


def read_response(body: Object) -> Response:
    reading = ResponseReadContext(NAME)
    if body.get("type") == "error":
        return Response(failure=read_error(body, 0, EMPTY_MAPPING), origin=reading.whole_origin(body, None))
    content = get_list(body, "content", None)
    if content is None or not (content or any(map(body.get, ("type", "stop_reason", "usage")))):
        if body.get("error"):
            return Response(failure=read_error(body, 0, EMPTY_MAPPING), origin=reading.whole_origin(body, None))
        raise Malformed(None, "this is not an Anthropic answer: `content` or `type` is missing")
    parts = read_content(content, _CONTENT_PATH, reading)
    finish = read_finish(body, None, reading)
    usage = reading.get_counted(body, "usage", None)
    response = Response(
        get_text(body, "id", None) or "",
        get_text(body, "model", None) or "",
        None,
        (Choice(0, parts, finish, Origin(NAME, _CONTENT_PATH, content)),),
        None if usage is None else read_usage(usage, _USAGE_PATH, reading),
        None,
        reading.read_origin(body, None, names.MESSAGE_KEYS),
        tuple(reading.unknown_fields),
    )
    return expect_answer(response)


def read_finish(node: Object, path: Path, reading: ReadContext) -> Finish | None:
    """The stop reason of a message or of a `message_delta`; None if there is none yet."""
    reason = get_text(node, "stop_reason", path)
    if reason is None:
        return None
    wire: Object = {"stop_reason": reason}
    sequence = None
    explanations: list[str | None] = []
    if "stop_sequence" in node:
        sequence = wire["stop_sequence"] = node["stop_sequence"]
    if "stop_details" in node:
        details = wire["stop_details"] = get_object(node, "stop_details", path)
        if details:
            here = (path, "stop_details")
            reading.read_origin(details, here, names.STOP_DETAILS_KEYS)
            explanations = [get_text(details, key, here) for key in ("category", "explanation")]
    return Finish(
        names.KIND_BY_STOP_REASON.get(reason, "other"),
        reason,
        "" if sequence is None else expect_text(sequence, (path, "stop_sequence")),
        ": ".join(filter(None, explanations)),
        Origin(NAME, (path, "stop_reason"), wire),
    )


_COUNT_KEYS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


_HOUR_KEYS = ("cache_creation", "ephemeral_1h_input_tokens")
_SEARCH_KEYS = ("server_tool_use", "web_search_requests")


def read_usage(usage: Object, path: Path, reading: ReadContext) -> Usage:
    """Token counts. Anthropic counts cached tokens apart from the other input tokens."""
    fresh, output, read, written = reading.read_counts(usage, _COUNT_KEYS, path)
    details = None
    if "output_tokens_details" in usage and (details := reading.get_counted(usage, "output_tokens_details", path)):
        reading.read_origin(details, (path, "output_tokens_details"), names.USAGE_DETAILS_KEYS)
    known = names.USAGE_KEYS
    if not known.issuperset(usage):
        if "iterations" in usage:
            counts = [fresh, output, read, written]
            fresh, output, read, written = _add_compactions(counts, usage["iterations"])
        # Details such as `{"web_search_requests": 0}` say nothing.
        known |= {key for key, value in usage.items() if isinstance(value, dict) and not any(value.values())}
    return Usage(
        (fresh or 0) + (read or 0) + (written or 0),
        output or 0,
        read,
        written,
        reading.read_counts(details, ("thinking_tokens",), (path, "output_tokens_details"))[0] if details else None,
        origin=reading.read_origin(usage, path, known),
        cache_write_1h=find_count(usage, *_HOUR_KEYS) if _HOUR_KEYS[0] in usage else None,
        searches=find_count(usage, *_SEARCH_KEYS) if _SEARCH_KEYS[0] in usage else None,
    )


def _add_compactions(counts: list[int | None], iterations: Json) -> list[int | None]:
    """The counts of a message do not contain those of the compactions before it, which cost the same
    (platform.claude.com, build-with-claude/compaction, "Understanding usage", November 2026)."""
    for node in iterations if isinstance(iterations, list) else ():
        if isinstance(node, dict) and node.get("type") == "compaction":
            more = [find_count(node, key) for key in _COUNT_KEYS]
            counts = [mine if other is None else (mine or 0) + other for mine, other in zip(counts, more, strict=True)]
    return counts


# --- writing ----------------------------------------------------------------------------------------------------------


def write_response(response: Response, ledger: Ledger, context: WriteContext) -> Object:
    if (wire := intact_wire(response.origin)) is not None:
        return wire
    if response.failure is not None:
        body: Object = write_error(response.failure).body
        return body
    choice = response.choices[0] if response.choices else Choice(0, ())
    if len(response.choices) > 1:
        ledger.note_other_choices(response, "Anthropic gives one answer only")
    id, parts = message_id(response.id, context), choice.parts
    kinds = set(map(type, parts))
    for part in parts:
        if type(part) is Text or type(part) is Refusal:
            ledger.note_logprobs(part.logprobs)
    used: Sequence[str] = ()
    if ProviderCall in kinds or (context.request is not None and ProviderTool in map(type, context.request.tools)):
        tool_use = ProviderToolUse(context.request)
        parts, used = add_missing_results(parts, tool_use, choice.finish, id), tool_use.used
    out: Object = {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": model_name(response.model, ledger, context),
        "content": write_parts(parts, ledger, True),
        **write_finish(choice.finish, Refusal in kinds, ledger),
        "usage": write_usage(response.usage, ledger, MESSAGE_USAGE, used),
    }
    if not is_own(response.origin):
        out["container"] = None
    return restore_original_keys(out, response.origin, NAME)


def message_id(id: str, context: WriteContext) -> str:
    """Anthropic's own id, or one derived from another provider's. Some providers repeat an id, and Claude Code would
    merge such answers: therefore the seed of the answer is part of it."""
    if id.startswith("msg"):
        return id
    return derive_id("msg_", id, context.seed) if context.seed not in ("", id) else derive_id("msg_", id)


def model_name(answered_model: str, ledger: Ledger, context: WriteContext) -> str:
    """The model that the client asked for, if another provider answered: when Claude Code resumes a session, it removes
    the thinking, and with it the seals, from answers of other models."""
    asked = context.request.model if context.request is not None else ""
    return (answered_model or asked if ledger.source == NAME else asked or answered_model) or names.UNKNOWN_MODEL


def write_finish(finish: Finish | None, refused: bool, ledger: Ledger) -> Object:
    """`stop_reason`, `stop_sequence` and `stop_details`."""
    wire = intact_wire(finish.origin) if finish is not None else {}
    if finish is None or wire is not None:
        return {"stop_reason": None, "stop_sequence": None, "stop_details": None, **(wire or {})}
    kind = "refusal" if refused and finish.kind == "stop" else finish.kind
    is_own_word = names.KIND_BY_STOP_REASON.get(finish.raw) == kind
    reason = finish.raw if is_own_word else names.STOP_REASON_BY_KIND[kind]
    if kind in names.REPORTED_FINISH_KINDS and reason != finish.raw:
        what = f"the finish reason `{finish.raw or finish.kind}` became `{reason}`"
        ledger.note("finish-mapped", source_path(finish), what)
    if reason != "refusal":
        ledger.note_finish_detail(finish)
    return {
        "stop_reason": reason,
        "stop_sequence": finish.sequence or None,
        "stop_details": _write_stop_details(finish) if reason == "refusal" else None,
    }


def _write_stop_details(finish: Finish) -> Object:
    """Category and explanation. For another protocol's finish reason, that reason is the explanation."""
    detail = finish.detail or (finish.raw if finish.raw not in names.KIND_BY_STOP_REASON else "")
    category, _, explanation = detail.partition(": ")
    if category not in names.REFUSAL_CATEGORIES:
        category, explanation = "", detail
    return {"type": "refusal", "category": category or None, "explanation": explanation or None}


def write_usage(usage: Usage | None, ledger: Ledger, required: Sequence[str], tools_used: Sequence[str] = ()) -> Object:
    """Token counts; members of `required` that are unknown are null."""
    if usage is None:
        ledger.note("default-added", None, "the token counts are 0", "the provider sent none")
        usage = Usage()
    if (wire := intact_wire(usage.origin)) is not None:
        return wire
    fresh, read, written = usage.input, usage.cache_read, usage.cache_write
    if read or written or fresh < 0:
        fresh = max(0, fresh - (read or 0) - (written or 0))
    # Anthropic always sends the counts of the cache, and clients add them up.
    out: Object = {
        "input_tokens": fresh,
        "cache_creation_input_tokens": written or 0,
        "cache_read_input_tokens": read or 0,
        "output_tokens": usage.output,
    }
    if usage.reasoning is not None:
        out["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    if usage.cache_write_1h:
        short = max(0, (written or 0) - usage.cache_write_1h)
        out["cache_creation"] = {
            "ephemeral_5m_input_tokens": short,
            "ephemeral_1h_input_tokens": usage.cache_write_1h,
        }
    searches, fetches = usage.searches or tools_used.count("web_search"), tools_used.count("web_fetch")
    if searches or fetches:
        out["server_tool_use"] = {"web_search_requests": searches, "web_fetch_requests": fetches}
    if not is_own(usage.origin):
        for name in required:
            out.setdefault(name)
    return restore_original_keys(out, usage.origin, NAME)


DELTA_USAGE = ("output_tokens_details", "server_tool_use")
MESSAGE_USAGE = (*DELTA_USAGE, "cache_creation", "service_tier", "inference_geo")
"""What other providers do not always say. Anthropic's schema of `message_delta` and of a message requires these
members, and null is allowed."""


# --- tools that the provider ran --------------------------------------------------------------------------------------


class ProviderToolUse:
    """The provider tools of one answer: which were used, and which calls have no result yet."""

    __slots__ = ("_cited_titles", "_missing_results", "_offers_search", "may_cite_by_position", "used")

    def __init__(self, request: Request | None) -> None:
        tools = [] if request is None else [tool.tool for tool in request.tools if isinstance(tool, ProviderTool)]
        self.used: list[str] = []
        self.may_cite_by_position = request is None or bool(tools)
        """May there be a citation that gives only its position in the text?"""
        self._offers_search = "web_search" in tools
        self._missing_results: dict[str, Part] = {}
        self._cited_titles: dict[str, str] = {}

    def add_call(self, part: ProviderCall) -> None:
        self.used.append(part.tool)
        # Anthropic always sends a result; OpenAI, for instance, does not.
        if part.tool in ("web_search", "web_fetch") and is_foreign(part.origin):
            self._missing_results[part.id] = ProviderResult(part.id, part.tool)

    def add_result(self, id: str) -> None:
        self._missing_results.pop(id, None)

    def add_citation(self, citation: Citation) -> None:
        if self._offers_search and citation.url and not is_own(citation.origin):
            self._cited_titles.setdefault(citation.url, citation.title)

    def take_missing_results(self) -> list[Part]:
        """Empty results for calls that have none: Anthropic's clients expect one for each."""
        if not self._missing_results:
            return []
        parts, self._missing_results = list(self._missing_results.values()), {}
        return parts

    def take_final_parts(self, finish: Finish | None, seed: str) -> list[Part]:
        """Results that are still missing at the end, and a search if the answer cites web pages without one."""
        if finish is not None and finish.kind == "pause":
            return []
        parts = self.take_missing_results()
        if self._cited_titles and not self.used:
            self.used.append("web_search")
            sources = tuple([Citation(url, title) for url, title in self._cited_titles.items()])
            parts += [ProviderCall(seed, "web_search"), ProviderResult(seed, "web_search", sources)]
        return parts


def add_missing_results(
    parts: tuple[Part, ...], tool_use: ProviderToolUse, finish: Finish | None, seed: str
) -> tuple[Part, ...]:
    """The parts of an answer, with a result for each call of a provider tool."""
    answered = {part.id for part in parts if isinstance(part, ProviderResult)}
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Text):
            out += tool_use.take_missing_results()
            for citation in part.citations:
                tool_use.add_citation(citation)
        out.append(part)
        if isinstance(part, ProviderCall):
            tool_use.add_call(part)
            if part.id in answered:
                tool_use.add_result(part.id)
    out += tool_use.take_final_parts(finish, seed)
    return tuple(out) if len(out) > len(parts) else parts


# --- peeking ----------------------------------------------------------------------------------------------------------


class _BlockPeek(Struct, gc=False):
    type: str
    name: str = ""


class _ResponsePeek(Struct, gc=False):
    content: Raw
    stop_reason: str
    model: str = ""
    usage: Object | None = None


_decode_peek, _decode_blocks_peek = partial_decoder(_ResponsePeek), partial_decoder(list[_BlockPeek])


def peek_response(data: bytes) -> ResponsePeek | None:
    peek = _decode_peek(data)
    if peek is None:
        return None
    usage = read_usage(peek.usage, None, ReadContext(NAME)) if peek.usage else None
    blocks = _decode_blocks_peek(peek.content) if data.find(b'"tool_use"') >= 0 else None
    return ResponsePeek(peek.model, usage, tuple([block.name for block in blocks or () if block.type == "tool_use"]))
