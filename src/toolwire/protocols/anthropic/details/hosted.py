"""Tools that the provider runs itself: what they were asked and what they found."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from toolwire.hosted import retold
from toolwire.ids import digest
from toolwire.ir import (
    Citation,
    Finish,
    HostedCall,
    HostedResult,
    HostedTool,
    Opaque,
    Origin,
    Part,
    Request,
    Text,
    changed,
    place,
)
from toolwire.loss import Ledger
from toolwire.protocols.anthropic.details.stamp import is_foreign, is_own
from toolwire.protocols.anthropic.names import (
    HOSTED_RESULT,
    HOSTED_RESULT_DIRECT,
    NAME,
    TOOL_USE,
    TOOL_USE_DIRECT,
    keys,
)
from toolwire.reading import Reading, finished, verbatim
from toolwire.wire import (
    Json,
    Object,
    Path,
    embedded,
    encode_text,
    take_list,
    take_object,
    take_text,
)

NAME_OF_RESULT = {
    "web_search_tool_result": "web_search",
    "web_fetch_tool_result": "web_fetch",
    "code_execution_tool_result": "code_execution",
}
TOOLS = frozenset(NAME_OF_RESULT.values())

_SOURCE = keys("type", "url", "title")
_SERVER_ID = re.compile(r"srvtoolu_[a-zA-Z0-9_]+")


def is_direct(block: Object) -> bool:
    """`caller: direct` is what its absence says too."""
    caller = block.get("caller")
    return caller is None or (isinstance(caller, dict) and caller.get("type") == "direct" and len(caller) == 1)


# --- reading ----------------------------------------------------------------------------------------------------------


def read_server_call(block: Object, path: Path, reading: Reading) -> Part:
    name = take_text(block, "name", path) or ""
    if name not in TOOLS:
        return Opaque("server_tool_use", reading.whole(block, path))
    given = take_object(block, "input", path)
    origin = reading.origin(block, path, TOOL_USE_DIRECT if is_direct(block) else TOOL_USE)
    return HostedCall(take_text(block, "id", path) or "", name, "" if given is None else encode_text(given), origin)


def read_server_result(block: Object, path: Path, reading: Reading) -> Part:
    kind = block["type"]
    content = block.get("content")
    fields = _FOUND[NAME_OF_RESULT[kind]](content, (path, "content"), reading)
    if fields is None:
        return Opaque(kind, reading.whole(block, path))
    origin = reading.origin(block, path, HOSTED_RESULT_DIRECT if is_direct(block) else HOSTED_RESULT)
    id = take_text(block, "tool_use_id", path) or ""
    sources, text, error = fields
    return HostedResult(id, NAME_OF_RESULT[kind], sources, text, error, origin)


_Found = tuple[tuple[Citation, ...], str, str]


def _error(content: Json) -> _Found | None:
    code = content.get("error_code") if isinstance(content, dict) else None
    return ((), "", code) if isinstance(code, str) else None


def _found_pages(content: Json, path: Path, reading: Reading) -> _Found | None:
    if not isinstance(content, list) or not all(isinstance(item, dict) for item in content):
        return _error(content)
    sources = tuple(
        Citation(
            take_text(item, "url", (path, number)) or "",
            take_text(item, "title", (path, number)) or "",
            origin=reading.origin(item, (path, number), _SOURCE),
        )
        for number, item in enumerate(content)
    )
    return sources, "", ""


def _found_page(content: Json, path: Path, reading: Reading) -> _Found | None:
    if not isinstance(content, dict) or content.get("type") != "web_fetch_result":
        return _error(content)
    document = take_object(content, "content", path) or {}
    source = document.get("source")
    plain = isinstance(source, dict) and source.get("type") == "text"
    text = source.get("data") if isinstance(source, dict) and plain else ""
    if content.get("retrieved_at") is not None:
        reading.stray(path, "retrieved_at")
    if not plain:
        reading.stray(path, "content")
    title = document.get("title")
    page = Citation(take_text(content, "url", path) or "", title if isinstance(title, str) else "")
    return (page,), text if isinstance(text, str) else "", ""


def _found_output(content: Json, path: Path, reading: Reading) -> _Found | None:
    if not isinstance(content, dict) or content.get("type") != "code_execution_result":
        return _error(content)
    if take_list(content, "content", path):
        reading.stray(path, "content")
    if content.get("return_code"):
        reading.stray(path, "return_code")
    return (), (take_text(content, "stdout", path) or "") + (take_text(content, "stderr", path) or ""), ""


_FOUND = {"web_search": _found_pages, "web_fetch": _found_page, "code_execution": _found_output}


NOBODY = ""
"""The protocol of what we made up for a client in this wire's shape: its provider never sealed that."""


def disowned(parts: tuple[Part, ...]) -> tuple[Part, ...] | None:
    """An earlier answer of another provider, which stands in this wire's shape because the client has no other: its
    searches and citations bear no seal, and would be refused. None when there are no such."""
    for part in parts:
        if type(part) is HostedResult or (type(part) is Text and part.citations):
            break
    else:
        return None
    unsealed = {part.id for part in parts if type(part) is HostedResult and _is_unsealed(part)}
    cites = any(type(part) is Text and _cites_unsealed(part) for part in parts)
    if not unsealed and not cites:
        return None
    return tuple([_disowned(part, unsealed) for part in parts])


def _disowned(part: Part, unsealed: set[str]) -> Part:
    if isinstance(part, (HostedCall, HostedResult)) and part.id in unsealed:
        return replace(part, origin=_nobodys(part.origin))
    if isinstance(part, Text) and _cites_unsealed(part):
        cited = tuple([replace(one, origin=_nobodys(one.origin)) for one in part.citations])
        return changed(part, citations=cited)
    return part


def _nobodys(origin: Origin | None) -> Origin | None:
    return None if origin is None else Origin(NOBODY, origin.path, None)


def _is_unsealed(part: HostedResult) -> bool:
    if part.tool != "web_search" or part.error or part.origin is None:
        return False
    found = part.origin.wire.get("content")
    return not found or any(not item.get("encrypted_content") for item in found)


def _cites_unsealed(part: Text) -> bool:
    return any(_location(one) is not None and not _location(one) for one in part.citations)


def _location(citation: Citation) -> str | None:
    """The seal of a citation of a search; None where it has no place for one."""
    wire = citation.origin.wire if citation.origin is not None else None
    return wire.get("encrypted_index") if isinstance(wire, dict) else None


def runs_tools(request: Request | None) -> bool:
    """Does the request offer tools that the provider runs?"""
    return request is not None and HostedTool in map(type, request.tools)


class Searches:
    """The provider's own tools in one answer: which were used, and which results a client still waits for."""

    __slots__ = ("_asked", "_cited", "_owed", "quotes", "used")

    def __init__(self, request: Request | None) -> None:
        tools = [tool for tool in request.tools if isinstance(tool, HostedTool)] if request is not None else []
        self.used: list[str] = []
        self.quotes = request is None or bool(tools)
        """May a citation come that names its place in the text alone?"""
        self._asked = bool(tools) and any(tool.tool == "web_search" for tool in tools)
        self._owed: dict[str, Part] = {}
        self._cited: dict[str, str] = {}

    def called(self, part: HostedCall) -> None:
        self.used.append(part.tool)
        # Who speaks this wire sends the result sooner or later; others may never.
        if part.tool in ("web_search", "web_fetch") and is_foreign(part.origin):
            self._owed[part.id] = HostedResult(part.id, part.tool)

    def came(self, part: HostedResult) -> None:
        self._owed.pop(part.id, None)

    def cites(self, citation: Citation) -> None:
        if self._asked and citation.url and not is_own(citation.origin):
            self._cited.setdefault(citation.url, citation.title)

    @property
    def waits(self) -> bool:
        return bool(self._owed)

    def settled(self) -> list[Part]:
        """Empty results for searches that have none: clients count results."""
        parts, self._owed = list(self._owed.values()), {}
        return parts

    def last(self, finish: Finish | None, seed: str) -> list[Part]:
        """What is still missing at the end. An answer that cites the web has searched, also where nobody said so."""
        if finish is not None and finish.kind == "pause":
            return []
        parts = self.settled()
        if self._cited and not self.used:
            self.used.append("web_search")
            sources = tuple([Citation(url, title) for url, title in self._cited.items()])
            parts += [HostedCall(seed, "web_search"), HostedResult(seed, "web_search", sources)]
        return parts


def all_told(parts: tuple[Part, ...], searches: Searches, finish: Finish | None, seed: str) -> tuple[Part, ...]:
    """The parts of an answer, with what clients wait for."""
    given = {part.id for part in parts if isinstance(part, HostedResult)}
    out: list[Part] = []
    for part in parts:
        if isinstance(part, Text):
            if searches.waits:
                out += searches.settled()
            for citation in part.citations:
                searches.cites(citation)
        out.append(part)
        if isinstance(part, HostedCall):
            searches.called(part)
            if part.id in given:
                searches.came(HostedResult(part.id, part.tool))
    out += searches.last(finish, seed)
    return tuple(out) if len(out) > len(parts) else parts


def counted(used: Sequence[str]) -> Object:
    """How often which tool was used, as usage tells it."""
    searches, fetches = used.count("web_search"), used.count("web_fetch")
    if not searches and not fetches:
        return {}
    return {"server_tool_use": {"web_search_requests": searches, "web_fetch_requests": fetches}}


# --- writing ----------------------------------------------------------------------------------------------------------


def server_id(id: str) -> str:
    """The wire demands a prefix and fewer characters than call ids have."""
    return id if _SERVER_ID.fullmatch(id) else f"srvtoolu_{digest(id, 24)}"


def write_server_call(part: HostedCall, ledger: Ledger, answer: bool) -> Object | None:
    if not _sayable(part, ledger, answer):
        return None
    given = embedded(part.arguments)
    out = {
        "type": "server_tool_use",
        "id": server_id(part.id),
        "name": part.tool,
        "input": {"input": part.arguments} if given is None else given,
    }
    return finished(out, part.origin, NAME)


def write_server_result(part: HostedResult, ledger: Ledger, answer: bool) -> Object | None:
    if not _sayable(part, ledger, answer):
        return None if answer else _as_text(part, ledger)
    kind = f"{part.tool}_tool_result"
    content: Json
    if part.error:
        content = {"type": f"{kind}_error", "error_code": part.error}
    elif part.tool == "web_search":
        content = [_page(source) for source in part.sources]
        if part.text:
            ledger.note("part-dropped", place(part), "the text that a search found was left out")
    elif part.tool == "web_fetch":
        content = _document(part)
    else:
        content = {"type": "code_execution_result", "stdout": part.text, "stderr": "", "return_code": 0, "content": []}
    out = {"type": kind, "tool_use_id": server_id(part.id), "content": content}
    return finished(out, part.origin, NAME)


def _sayable(part: HostedCall | HostedResult, ledger: Ledger, answer: bool) -> bool:
    """In an answer they are told as they are; in a history the provider wants results that it sealed itself."""
    if part.tool in TOOLS and (answer or not is_foreign(part.origin)):
        return True
    if answer or isinstance(part, HostedCall):
        what = "call" if isinstance(part, HostedCall) else "result"
        ledger.note("part-dropped", place(part), f"a {what} of the provider's own `{part.tool}` was left out")
    return False


def _page(source: Citation) -> Object:
    origin = source.origin
    if origin is not None and verbatim(origin, NAME):
        page: Object = origin.wire
        return page
    page = {"type": "web_search_result", "url": source.url, "title": source.title}
    sealed: Object = {} if is_own(origin) else {"encrypted_content": "", "page_age": None}
    return finished(page | sealed, origin, NAME)


def _document(part: HostedResult) -> Object:
    page = part.sources[0] if part.sources else Citation()
    source = {"type": "text", "media_type": "text/plain", "data": part.text}
    document = {"type": "document", "source": source, "title": page.title or None}
    return {"type": "web_fetch_result", "url": page.url, "content": document, "retrieved_at": None}


def _as_text(part: HostedResult, ledger: Ledger) -> Object | None:
    text = retold(part, ledger)
    return None if text is None else {"type": "text", "text": text.text}
