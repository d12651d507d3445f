"""Tools that the provider runs itself: what they were asked and what they found."""

from __future__ import annotations

import re

from toolwire.ids import digest
from toolwire.ir import Citation, HostedCall, HostedResult, Opaque, Part, place
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
    lines = [f"{source.title} {source.url}".strip() for source in part.sources]
    text = "\n".join(filter(None, [part.text, *lines, part.error]))
    if not text.strip():
        return None
    ledger.note("hosted-as-text", place(part), f"the result of `{part.tool}` became text")
    return {"type": "text", "text": f"[{part.tool} found]\n{text}"}
