"""Tools that Anthropic runs itself: their calls (`server_tool_use`) and results (`…_tool_result`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.core.ids import hex_digest
from toolwire.core.ir import (
    Citation,
    Finish,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    ProviderTool,
    Request,
    Text,
    replace_fields,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    encode_text,
    get_list,
    get_object,
    get_text,
    raw_object_or_none,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, restore_original_keys
from toolwire.core.provider_tools import provider_result_as_text
from toolwire.protocols.anthropic.names import (
    NAME,
    PROVIDER_RESULT_KEYS,
    SOURCE_KEYS,
    TOOL_USE_KEYS,
    intact_wire,
    is_foreign,
    is_own,
)

TOOL_BY_RESULT_TYPE = {
    "web_search_tool_result": "web_search",
    "web_fetch_tool_result": "web_fetch",
    "code_execution_tool_result": "code_execution",
}
SUPPORTED_TOOLS = frozenset(TOOL_BY_RESULT_TYPE.values())

_PROVIDER_CALL_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")


def known_call_keys(block: Object, keys: frozenset[str]) -> frozenset[str]:
    """`keys`, and `caller` where it is `{"type": "direct"}`, because that is the default."""
    return keys | {"caller"} if "caller" in block and block["caller"] in (None, {"type": "direct"}) else keys


# --- reading ----------------------------------------------------------------------------------------------------------


def read_provider_call(block: Object, path: Path, reading: ReadContext) -> Part:
    name = get_text(block, "name", path) or ""
    if name not in SUPPORTED_TOOLS:
        return Opaque("server_tool_use", reading.whole_origin(block, path))
    arguments = get_object(block, "input", path)
    return ProviderCall(
        get_text(block, "id", path) or "",
        name,
        "" if arguments is None else encode_text(arguments),
        reading.read_origin(block, path, known_call_keys(block, TOOL_USE_KEYS)),
    )


def read_provider_result(block: Object, path: Path, reading: ReadContext) -> Part:
    tool = TOOL_BY_RESULT_TYPE[block["type"]]
    fields = _RESULT_READERS[tool](block.get("content"), (path, "content"), reading)
    if fields is None:
        return Opaque(block["type"], reading.whole_origin(block, path))
    origin = reading.read_origin(block, path, known_call_keys(block, PROVIDER_RESULT_KEYS))
    return ProviderResult(get_text(block, "tool_use_id", path) or "", tool, *fields, origin)


_ResultFields = tuple[tuple[Citation, ...], str, str]


def _read_result_error(content: Json) -> _ResultFields | None:
    code = content.get("error_code") if isinstance(content, dict) else None
    return ((), "", code) if isinstance(code, str) else None


def _read_search_sources(content: Json, path: Path, reading: ReadContext) -> _ResultFields | None:
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        return _read_result_error(content)
    sources = tuple(
        Citation(
            get_text(item, "url", (path, number)) or "",
            get_text(item, "title", (path, number)) or "",
            origin=reading.read_origin(item, (path, number), SOURCE_KEYS),
        )
        for number, item in enumerate(content)
    )
    return sources, "", ""


def _read_fetched_page(content: Json, path: Path, reading: ReadContext) -> _ResultFields | None:
    if not isinstance(content, dict) or content.get("type") != "web_fetch_result":
        return _read_result_error(content)
    document = get_object(content, "content", path) or {}
    source = document.get("source")
    plain = isinstance(source, dict) and source.get("type") == "text"
    text = source.get("data") if isinstance(source, dict) and plain else ""
    if content.get("retrieved_at") is not None:
        reading.note_unknown_field(path, "retrieved_at")
    if not plain:
        reading.note_unknown_field(path, "content")
    title = document.get("title")
    page = Citation(get_text(content, "url", path) or "", title if isinstance(title, str) else "")
    return (page,), text if isinstance(text, str) else "", ""


def _read_execution_output(content: Json, path: Path, reading: ReadContext) -> _ResultFields | None:
    if not isinstance(content, dict) or content.get("type") != "code_execution_result":
        return _read_result_error(content)
    if get_list(content, "content", path):
        reading.note_unknown_field(path, "content")
    if content.get("return_code"):
        reading.note_unknown_field(path, "return_code")
    return (), (get_text(content, "stdout", path) or "") + (get_text(content, "stderr", path) or ""), ""


_RESULT_READERS = {
    "web_search": _read_search_sources,
    "web_fetch": _read_fetched_page,
    "code_execution": _read_execution_output,
}


NO_PROTOCOL = ""
"""The protocol of blocks that Toolwire made for an Anthropic client from another provider's answer."""


def disown_unsealed_parts(parts: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """The parts of an earlier answer that Toolwire translated: searches and citations without Anthropic's encrypted
    values, which Anthropic would refuse, no longer count as its own. None if there are none."""
    unsealed = {part.id for part in parts if type(part) is ProviderResult and _is_unsealed_search(part)}
    if not unsealed and not any(type(part) is Text and _has_unsealed_citation(part) for part in parts):
        return None
    return tuple([_disown_part(part, unsealed) for part in parts])


def _disown_part(part: Part, unsealed: set[str]) -> Part:
    if isinstance(part, (ProviderCall, ProviderResult)) and part.id in unsealed:
        return replace(part, origin=_disown_origin(part.origin))
    if isinstance(part, Text) and _has_unsealed_citation(part):
        citations = tuple([replace(one, origin=_disown_origin(one.origin)) for one in part.citations])
        return replace_fields(part, citations=citations)
    return part


def _disown_origin(origin: Origin | None) -> Origin | None:
    return None if origin is None else Origin(NO_PROTOCOL, origin.path, None)


def _is_unsealed_search(part: ProviderResult) -> bool:
    if part.tool != "web_search" or part.error or part.origin is None:
        return False
    pages = part.origin.wire.get("content")
    return not pages or any(not page.get("encrypted_content") for page in pages)


def _has_unsealed_citation(part: Text) -> bool:
    wires = [citation.origin.wire for citation in part.citations if citation.origin is not None]
    return any(isinstance(wire, dict) and wire.get("encrypted_index") == "" for wire in wires)


def offers_provider_tools(request: Request | None) -> bool:
    """Does the request offer tools that the provider runs?"""
    return request is not None and ProviderTool in map(type, request.tools)


class ProviderToolUse:
    """The provider tools of one answer: which were used, and which calls have no result yet."""

    __slots__ = ("_cited_titles", "_missing_results", "_offers_search", "may_cite_by_position", "used")

    def __init__(self, request: Request | None) -> None:
        tools = [tool for tool in request.tools if isinstance(tool, ProviderTool)] if request is not None else []
        self.used: list[str] = []
        self.may_cite_by_position = request is None or bool(tools)
        """May there be a citation that gives only its position in the text?"""
        self._offers_search = bool(tools) and any(tool.tool == "web_search" for tool in tools)
        self._missing_results: dict[str, Part] = {}
        self._cited_titles: dict[str, str] = {}

    def add_call(self, part: ProviderCall) -> None:
        self.used.append(part.tool)
        # Anthropic always sends a result; OpenAI, for instance, does not.
        if part.tool in ("web_search", "web_fetch") and is_foreign(part.origin):
            self._missing_results[part.id] = ProviderResult(part.id, part.tool)

    def add_result(self, part: ProviderResult) -> None:
        self._missing_results.pop(part.id, None)

    def add_citation(self, citation: Citation) -> None:
        if self._offers_search and citation.url and not is_own(citation.origin):
            self._cited_titles.setdefault(citation.url, citation.title)

    @property
    def has_missing_results(self) -> bool:
        return bool(self._missing_results)

    def take_missing_results(self) -> list[Part]:
        """Empty results for calls that have none: Anthropic's clients expect one for each."""
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
            if tool_use.has_missing_results:
                out += tool_use.take_missing_results()
            for citation in part.citations:
                tool_use.add_citation(citation)
        out.append(part)
        if isinstance(part, ProviderCall):
            tool_use.add_call(part)
            if part.id in answered:
                tool_use.add_result(ProviderResult(part.id, part.tool))
    out += tool_use.take_final_parts(finish, seed)
    return tuple(out) if len(out) > len(parts) else parts


def write_tool_use_counts(used: Sequence[str]) -> Object:
    """`usage.server_tool_use`."""
    searches, fetches = used.count("web_search"), used.count("web_fetch")
    if not searches and not fetches:
        return {}
    return {"server_tool_use": {"web_search_requests": searches, "web_fetch_requests": fetches}}


# --- writing ----------------------------------------------------------------------------------------------------------


def write_provider_call_id(id: str) -> str:
    """Anthropic's ids of these calls begin with `srvtoolu_`."""
    return id if _PROVIDER_CALL_ID.fullmatch(id) else f"srvtoolu_{hex_digest(id, 24)}"


def write_provider_call(part: ProviderCall, ledger: Ledger, in_response: bool) -> Object | None:
    if not _can_write(part, ledger, in_response):
        return None
    arguments = raw_object_or_none(part.arguments)
    out = {
        "type": "server_tool_use",
        "id": write_provider_call_id(part.id),
        "name": part.tool,
        "input": {"input": part.arguments} if arguments is None else arguments,
    }
    return restore_original_keys(out, part.origin, NAME)


def write_provider_result(part: ProviderResult, ledger: Ledger, in_response: bool) -> Object | None:
    if not _can_write(part, ledger, in_response):
        text = None if in_response else provider_result_as_text(part, ledger)
        return None if text is None else {"type": "text", "text": text.text}
    kind = f"{part.tool}_tool_result"
    content: Json
    if part.error:
        content = {"type": f"{kind}_error", "error_code": part.error}
    elif part.tool == "web_search":
        content = [_write_source(source) for source in part.sources]
        if part.text:
            ledger.note("part-dropped", source_path(part), "the text of a search result was left out")
    elif part.tool == "web_fetch":
        content = _write_fetched_page(part)
    else:
        content = {"type": "code_execution_result", "stdout": part.text, "stderr": "", "return_code": 0, "content": []}
    out = {"type": kind, "tool_use_id": write_provider_call_id(part.id), "content": content}
    return restore_original_keys(out, part.origin, NAME)


def _can_write(part: ProviderCall | ProviderResult, ledger: Ledger, in_response: bool) -> bool:
    """In a history Anthropic accepts only its own results, because they are encrypted."""
    if part.tool in SUPPORTED_TOOLS and (in_response or not is_foreign(part.origin)):
        return True
    if in_response or isinstance(part, ProviderCall):
        what = "call" if isinstance(part, ProviderCall) else "result"
        ledger.note("part-dropped", source_path(part), f"a {what} of the provider tool `{part.tool}` was left out")
    return False


def _write_source(source: Citation) -> Object:
    if (wire := intact_wire(source.origin)) is not None:
        return wire
    page = {"type": "web_search_result", "url": source.url, "title": source.title}
    sealed: Object = {} if is_own(source.origin) else {"encrypted_content": "", "page_age": None}
    return restore_original_keys(page | sealed, source.origin, NAME)


def _write_fetched_page(part: ProviderResult) -> Object:
    page = part.sources[0] if part.sources else Citation()
    source = {"type": "text", "media_type": "text/plain", "data": part.text}
    document = {"type": "document", "source": source, "title": page.title or None}
    return {"type": "web_fetch_result", "url": page.url, "content": document, "retrieved_at": None}
