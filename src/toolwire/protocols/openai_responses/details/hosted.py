"""What the provider's own tools did: one item tells the call and what it found."""

from __future__ import annotations

from toolwire.hosted import queries_of
from toolwire.ir import Citation, HostedCall, HostedResult, Part, place
from toolwire.loss import Ledger
from toolwire.protocols.openai_responses.names import HOSTED_ITEMS, NAME, RAW
from toolwire.protocols.openai_responses.parts import stamped
from toolwire.reading import Reading, finished
from toolwire.wire import Json, Object, Path, encode_text, object_or_none, take_list, take_object, take_text


def read_hosted(node: Object, path: Path, reading: Reading) -> tuple[Part, ...]:
    """One item says what was asked and what was found: a HostedCall, and a HostedResult if anything was told."""
    tool = HOSTED_ITEMS[node["type"]][0]
    id = take_text(node, "id", path) or ""
    arguments, sources, text, known = _READ_HOSTED[tool](node, path)
    if arguments.get("type") == "open_page" and isinstance(arguments.get("url"), str):
        tool, arguments = "web_fetch", {"url": arguments["url"]}
    origin = stamped(reading, node, path, known | {"type", "id", "status"})
    call = HostedCall(id, tool, encode_text(arguments) if arguments else "", origin)
    if not sources and not text:
        return (call,)
    return call, HostedResult(id, tool, sources, text, origin=origin)


_Hosted = tuple[Object, tuple[Citation, ...], str, frozenset[str]]


def _read_search(node: Object, path: Path) -> _Hosted:
    action = take_object(node, "action", path) or {}
    found = take_list(action, "sources", (path, "action")) or []
    sources = tuple(
        [Citation(str(one.get("url") or ""), str(one.get("title") or "")) for one in found if _has_url(one)]
    )
    if len(sources) == len(found):
        action = {key: value for key, value in action.items() if key != "sources"}
    else:
        sources = ()
    return _plain_search(action), sources, "", frozenset({"action"})


def _plain_search(action: Object) -> Object:
    """A search as every protocol tells it; `queries` beside `query` only where there are several."""
    if action.get("type", "search") != "search":
        return action
    plain = {key: value for key, value in action.items() if key != "type" and value not in (None, "", [])}
    queries = plain.get("queries")
    if isinstance(queries, list) and queries:
        plain.setdefault("query", queries[0])
        if queries == [plain["query"]]:
            del plain["queries"]
    return plain


def _has_url(source: Json) -> bool:
    return isinstance(source, dict) and source.keys() <= {"type", "url", "title"} and bool(source.get("url"))


def _read_code(node: Object, path: Path) -> _Hosted:
    code = take_text(node, "code", path)
    outputs = take_list(node, "outputs", path) or []
    logs = [one["logs"] for one in outputs if isinstance(one, dict) and isinstance(one.get("logs"), str)]
    known = frozenset({"code", "container_id"})
    arguments = {"code": code} if code is not None else {}
    return arguments, (), "".join(logs), known | {"outputs"} if len(logs) == len(outputs) else known


def _read_files(node: Object, path: Path) -> _Hosted:
    queries = take_list(node, "queries", path) or []
    results = take_list(node, "results", path) or []
    found = [one for one in results if isinstance(one, dict)]
    sources = tuple([Citation(title=str(one.get("filename") or ""), quote=str(one.get("text") or "")) for one in found])
    return {"queries": queries}, sources, "", frozenset({"queries"})


_READ_HOSTED = {"web_search": _read_search, "code_execution": _read_code, "file_search": _read_files}
HOSTED_TYPES = {tool: (item, prefix) for item, (tool, prefix) in HOSTED_ITEMS.items()}


def can_write_hosted(tool: str) -> bool:
    return tool in HOSTED_TYPES or tool == "web_fetch"


def write_hosted(
    call: HostedCall, result: HostedResult | None, ledger: Ledger, id: str, status: str = "completed"
) -> Object:
    """The item of a provider's own tool, written from its meaning."""
    arguments = object_or_none(call.arguments)
    if arguments is None:
        ledger.note("arguments-wrapped", place(call), f"arguments of {call.tool!r} that are no object were wrapped")
        arguments = {RAW: call.arguments}
    out: Object = {"type": HOSTED_TYPES.get(call.tool, HOSTED_TYPES["web_search"])[0], "id": id, "status": status}
    found = HostedResult(call.id, call.tool) if result is None else result
    _WRITE_HOSTED.get(call.tool, _write_search)(out, call, arguments, found, ledger)
    if found.error:
        ledger.note("part-dropped", place(found), f"the error of {call.tool!r} was left out")
    return finished(out, call.origin, NAME)


def _write_code(out: Object, call: HostedCall, arguments: Object, found: HostedResult, ledger: Ledger) -> None:
    out["code"] = arguments.get("code")
    out["container_id"] = ""
    out["outputs"] = [{"type": "logs", "logs": found.text}] if found.text else None
    if arguments.keys() - {"code"}:
        ledger.note("no-counterpart", place(call), "of the code that ran only its text is told")


def _write_files(out: Object, call: HostedCall, arguments: Object, found: HostedResult, ledger: Ledger) -> None:
    out["queries"] = arguments.get("queries") or []
    out["results"] = [{"filename": one.title, "text": one.quote} for one in found.sources] or None
    if found.text:
        ledger.note("part-dropped", place(found), "the text that a search of files found was left out")


def _write_search(out: Object, call: HostedCall, arguments: Object, found: HostedResult, ledger: Ledger) -> None:
    out["action"] = _search_action(call, arguments, ledger)
    if found.sources:
        out["action"]["sources"] = [{"type": "url", "url": one.url} for one in found.sources]
    for one in found.sources:
        if one.title or one.quote:
            ledger.note(
                "citation-mapped", place(one) or place(found), f"of the source {one.url!r} only its URL is told"
            )
    if found.text:
        ledger.note("part-dropped", place(found), f"the text that {call.tool!r} found was left out")


_WRITE_HOSTED = {"code_execution": _write_code, "file_search": _write_files}


def _search_action(call: HostedCall, arguments: Object, ledger: Ledger) -> Object:
    if "type" in arguments:
        return dict(arguments)
    if call.tool == "web_fetch":
        if ledger.source != NAME:
            ledger.note("tool-mapped", place(call), "a fetched page is told as an opened page of a search")
        return {"type": "open_page", "url": arguments.get("url")}
    queries = queries_of(call.arguments)
    return {"type": "search", **arguments, "query": queries[0] if queries else "", "queries": queries}
