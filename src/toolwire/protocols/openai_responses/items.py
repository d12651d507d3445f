"""The items of a Responses conversation, read and written: calls, their results, and reasoning. Requests, answers and
streams have the same items and share this module."""

from __future__ import annotations

from typing import Literal

from toolwire.core.ids import derive_id
from toolwire.core.ir import (
    Call,
    Citation,
    Media,
    Opaque,
    Origin,
    Part,
    ProviderCall,
    ProviderResult,
    Reasoning,
    Result,
    Seal,
    Text,
    ToolReference,
    ToolsAdded,
    plain_text,
    source_path,
)
from toolwire.core.json_values import (
    Json,
    Object,
    Path,
    decode_object_or_none,
    encode_text,
    expect_object,
    get_list,
    get_object,
    get_text,
    raise_wrong_type,
)
from toolwire.core.losses import Ledger
from toolwire.core.provenance import ReadContext, items_with_paths, restore_original_keys
from toolwire.core.provider_tools import search_queries
from toolwire.protocols.openai_responses import names
from toolwire.protocols.openai_responses.content import (
    image_url,
    read_content,
    read_image,
    read_item_origin,
    write_part,
)
from toolwire.protocols.openai_responses.names import NAME, is_own, is_own_seal
from toolwire.protocols.openai_responses.tools import read_tools, write_tools

RAW_ARGUMENTS_KEY = "_raw"
"""The key for arguments that are not a JSON object where one is demanded."""
RESULT_KEYS = frozenset({"type", "call_id", "output", "name", "namespace"})
SCREENSHOT_KEYS = frozenset({"type", "image_url", "file_id", "detail"})
REASONING_KEYS = frozenset({"type", "id", "summary", "content", "encrypted_content"})

# --- calls ----------------------------------------------------------------------------------------------------------


def is_run_by_provider(node: Object) -> bool:
    """Does OpenAI run this search or shell itself? Its items have the same type as the client's."""
    kind = node.get("type")
    if kind in ("tool_search_call", "tool_search_output"):
        return node.get("execution") != "client"
    if kind == "shell_call":
        environment = node.get("environment")
        return isinstance(environment, dict) and environment.get("type") not in (None, "local")
    return False


def read_call(node: Object, path: Path, shape: names.CallShape, reading: ReadContext) -> Call:
    id, name, arguments = node.get("call_id"), node.get("name"), node.get("arguments")
    # Most calls look like this, and an agent's history has hundreds of them.
    if len(node) == 4 and shape.kind == "function" and type(id) is type(name) is type(arguments) is str:
        return Call(id, name, arguments, "function", "", "", None, None, False, False, Origin(NAME, path, node))
    if node.get("id") is not None:
        # The id of the item. A call and its result are paired by `call_id`.
        reading.note_unknown_field(path, "id", "id-rewritten")
    return Call(
        get_text(node, "call_id", path) or "",
        shape.name or get_text(node, "name", path) or "",
        _read_arguments(node, path, shape),
        shape.kind,
        (get_text(node, "namespace", path) or "") if shape.event else "",
        get_text(node, "id", path) or "",
        incomplete=node.get("status") == "incomplete",
        is_async=bool(shape.event) and node.get("async") is True,
        origin=read_item_origin(reading, node, path, shape.known_keys),
    )


def _read_arguments(node: Object, path: Path, shape: names.CallShape) -> str:
    value = node.get(shape.payload_key)
    if isinstance(value, str):
        return value
    if value is None and shape.kind == "computer" and node.get("actions") is not None:
        return encode_text({"actions": node["actions"]})
    if value is None:
        return ""
    if not isinstance(value, dict):
        raise_wrong_type((path, shape.payload_key), "a string" if shape.event else "an object", value)
    return encode_text(value)


def valid_item_id(id: str, prefix: str, origin: Origin | None, item_type: str) -> str:
    """The id of an item if it has its type's prefix, or was read from this very type of item; else none."""
    if id.startswith(prefix):
        return id
    same = is_own(origin) and isinstance(origin.wire, dict) and origin.wire.get("type") == item_type
    return id if same else ""


def write_call(call: Call, ledger: Ledger, id: str = "", status: str = "") -> Object:
    """A call's item. Without `id` and `status` (in a request) both are there only where the type demands them."""
    if not id and call.is_plain and not call.item_id and not is_own(call.origin):
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    shape = names.SHAPE_BY_KIND.get(call.kind, names.SHAPE_BY_KIND["function"])
    id = id or valid_item_id(call.item_id, shape.id_prefix, call.origin, shape.item_type)
    if not id and shape.needs_id:
        id = derive_id(shape.id_prefix, call.id, call.name)
    status = status or ("incomplete" if call.incomplete else "" if shape.event else "completed")
    out = write_call_item(call, shape, id, status)
    if shape.kind == "search":
        out["execution"] = "client"
    _write_arguments(out, call, shape, ledger)
    note_call_losses(call, call.seal, ledger)
    return restore_original_keys(out, call.origin, NAME)


def write_call_item(call: Call, shape: names.CallShape, id: str, status: str) -> Object:
    """The item of a call, without its arguments."""
    out: Object = {"type": shape.item_type}
    if id:
        out["id"] = id
    if status:
        out["status"] = status
    out["call_id"] = call.id
    if not shape.name:
        out["name"] = call.name
        if call.namespace:
            out["namespace"] = call.namespace
    if call.is_async and shape.event:
        out["async"] = True
    return out


def note_call_losses(call: Call, seal: Seal | None, ledger: Ledger) -> None:
    """Note what the item of a call has no place for."""
    if seal is not None:
        ledger.note("seal-dropped", source_path(call), f"the seal of the call {call.name!r} was left out")
    if call.cache is not None:
        ledger.note("cache-dropped", source_path(call), f"the cache breakpoint of the call {call.name!r} was left out")


def _write_arguments(out: Object, call: Call, shape: names.CallShape, ledger: Ledger) -> None:
    text = call.arguments
    if shape.event:
        blank = not text or text.isspace()
        out[shape.payload_key] = "{}" if blank and shape.kind == "function" and not call.incomplete else text
        return
    if shape.kind == "computer":
        out["pending_safety_checks"] = []
        value = decode_object_or_none(text)
        if value is not None and "actions" in value:
            out["actions"] = value["actions"]
            return
    out[shape.payload_key] = ledger.embed_object(text, source_path(call))
    if out[shape.payload_key] is None:
        what = f"the arguments of {call.name!r} are not an object and were wrapped"
        ledger.note("arguments-wrapped", source_path(call), what)
        out[shape.payload_key] = {RAW_ARGUMENTS_KEY: text}


# --- results --------------------------------------------------------------------------------------------------------


def read_result(node: Object, path: Path, shape: names.CallShape, reading: ReadContext) -> Result:
    id, output = node.get("call_id"), node.get("output")
    # Most results look like this.
    if len(node) == 3 and shape.kind == "function" and type(id) is type(output) is str and output:
        text = Text(output, (), None, None, Origin(NAME, (path, "output"), output))
        return Result(id, (text,), None, "", "function", "", None, None, Origin(NAME, path, node))
    id = get_text(node, "call_id", path) or ""
    if shape.kind == "local_shell" and not id:
        id = get_text(node, "id", path) or ""
    content: tuple[Part, ...] = ()
    value, error, known = None, None, RESULT_KEYS
    at = (path, "output")
    if shape.kind == "search":
        content, known = (read_tools_added(node, path, reading),), RESULT_KEYS | {"tools", "execution"}
    elif shape.kind == "computer":
        screen = get_object(node, "output", path)
        if screen is not None:
            content = (read_image(screen, at, reading.read_origin(screen, at, SCREENSHOT_KEYS)),)
    elif isinstance(output, dict) or (shape.kind == "shell" and output is not None and not isinstance(output, str)):
        # A shell's output is a list of commands with stdout and stderr, not of parts.
        content, value = (Text(encode_text(output), origin=Origin(NAME, at, output)),), output
    elif output != "":
        content = read_content(output, at, reading)
    if shape.kind == "apply_patch":
        error, known = node.get("status") == "failed", RESULT_KEYS | {"status"}
    name, namespace = get_text(node, "name", path) or "", get_text(node, "namespace", path) or ""
    origin = read_item_origin(reading, node, path, known)
    return Result(id, content, error, name, shape.kind, namespace, value=value, origin=origin)


def read_tools_added(node: Object, path: Path, reading: ReadContext) -> ToolsAdded:
    tools, at = get_list(node, "tools", path) or [], (path, "tools")
    return ToolsAdded(read_tools(tools, at, reading), Origin(NAME, at, tools))


def write_result(result: Result, ledger: Ledger) -> Object:
    content = result.content
    if result.kind == "function" and len(content) == 1 and result.cache is None and not is_own(result.origin):
        text = content[0]
        if isinstance(text, Text) and text.cache is None:
            return {"type": "function_call_output", "call_id": result.id, "output": text.text}
    shape = names.SHAPE_BY_KIND.get(result.kind, names.SHAPE_BY_KIND["function"])
    out: Object = {"type": shape.output_type, "id" if shape.kind == "local_shell" else "call_id": result.id}
    if shape.kind == "search":
        out |= {"execution": "client", "status": "completed", "tools": _write_found_tools(result, ledger)}
    else:
        if shape.kind == "apply_patch":
            out["status"] = "failed" if result.error else "completed"
        out["output"] = _OUTPUT_WRITERS.get(shape.kind, _write_output)(result, ledger)
    if result.cache is not None:
        ledger.note("cache-dropped", source_path(result), "the cache breakpoint of a result was left out")
    if not is_own(result.origin):
        return out
    for key, value in (("name", result.name), ("namespace", result.namespace)):
        if value and key in result.origin.wire:
            out[key] = value
    return restore_original_keys(out, result.origin, NAME)


def _write_output(result: Result, ledger: Ledger) -> Json:
    """A string where the result is one text or none, else a list of typed parts."""
    parts = result.content
    if len(parts) == 1 and isinstance(parts[0], Text) and parts[0].cache is None:
        return parts[0].text
    return [written for part in parts if (written := _write_result_part(part, ledger)) is not None] or ""


def _write_result_part(part: Part, ledger: Ledger) -> Object | None:
    match part:
        case ToolReference(name):
            ledger.note("tool-mapped", source_path(part), f"a reference to the tool {name!r} became text")
            return {"type": "input_text", "text": name}
        case ToolsAdded(tools):
            listed = ", ".join(getattr(tool, "name", "") or getattr(tool, "kind", "") for tool in tools)
            ledger.note("tool-mapped", source_path(part), "tools found by a search became text")
            return {"type": "input_text", "text": listed}
    return write_part(part, "input", ledger)


def _write_found_tools(result: Result, ledger: Ledger) -> list[Object]:
    """The result of a tool search can only hold tools; anything else is lost."""
    tools: list[Object] = []
    for part in result.content:
        if isinstance(part, ToolsAdded):
            tools += write_tools(part.tools, ledger, part.origin)
        else:
            ledger.note("part-dropped", source_path(part), "the result of a tool search can hold tools only")
    return tools


def _write_shell_output(result: Result, ledger: Ledger) -> Json:
    if isinstance(result.value, list):
        return result.value
    for part in result.content:
        if not isinstance(part, Text):
            ledger.note("part-dropped", source_path(part), "the output of a shell can hold text only")
    text = plain_text(result.content)
    return [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 1 if result.error else 0}}]


def _write_screenshot(result: Result, ledger: Ledger) -> Object:
    out: Object = {"type": "computer_screenshot"}
    for part in result.content:
        if isinstance(part, Media) and part.kind == "image" and len(out) == 1:
            fields = {"image_url": image_url(part), "file_id": part.file_id, "detail": part.detail}
            out |= {key: value for key, value in fields.items() if value}
        else:
            ledger.note("part-dropped", source_path(part), "the result of a computer call can hold one screenshot only")
    return out


_OUTPUT_WRITERS = {"shell": _write_shell_output, "computer": _write_screenshot}


# --- reasoning ------------------------------------------------------------------------------------------------------

SUMMARY_SEPARATOR = "\n\n"


def read_reasoning(node: Object, path: Path, reading: ReadContext) -> Reasoning:
    """The raw reasoning where the item has it, else its summary; a summary beside raw reasoning stays in `extra`."""
    raw = _read_texts(node, "content", path)
    summary = _read_texts(node, "summary", path)
    encrypted = get_text(node, "encrypted_content", path)
    known = REASONING_KEYS - {"summary"} if raw and summary else REASONING_KEYS
    if node.get("id") is not None:
        reading.note_unknown_field(path, "id", "id-rewritten")
    text = "".join(raw) if raw else SUMMARY_SEPARATOR.join(summary)
    form: Literal["raw", "summary", ""] = "raw" if raw else "summary" if text else ""
    seal, id = Seal(NAME, encrypted) if encrypted else None, get_text(node, "id", path) or ""
    return Reasoning(text, form, seal=seal, id=id, origin=read_item_origin(reading, node, path, known))


def _read_texts(node: Object, key: str, path: Path) -> list[str]:
    parts = get_list(node, key, path) or []
    return [get_text(expect_object(one, at), "text", at) or "" for one, at in items_with_paths(parts, (path, key))]


def write_reasoning(part: Reasoning, ledger: Ledger, id: str = "") -> Object:
    id = id or valid_item_id(part.id, "rs_", part.origin, "reasoning")
    out: Object = {"type": "reasoning"}
    if id:
        out["id"] = id
    raw = part.form == "raw"
    out["summary"] = [{"type": "summary_text", "text": part.text}] if part.text and not raw else []
    if raw:
        out["content"] = [{"type": "reasoning_text", "text": part.text}]
        if is_own(part.origin) and "summary" in part.origin.extra:
            del out["summary"]
    if is_own_seal(part.seal):
        out["encrypted_content"] = part.seal.value
    elif part.seal is not None:
        ledger.note("seal-dropped", source_path(part), "the seal of a reasoning item was left out")
    return restore_original_keys(out, part.origin, NAME)


# --- tools that OpenAI runs: one item for a call and its results ----------------------------------------------------


def read_provider_item(node: Object, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """A ProviderCall, and a ProviderResult if the item has results."""
    tool, id = names.PROVIDER_ITEMS[node["type"]][0], get_text(node, "id", path) or ""
    arguments: Object = {}
    sources: tuple[Citation, ...] = ()
    text, known = "", frozenset({"type", "id", "status"})
    if tool == "web_search":
        arguments, sources = _read_search(node, path)
        known |= {"action"}
    elif tool == "file_search":
        arguments = {"queries": get_list(node, "queries", path) or []}
        found = [one for one in get_list(node, "results", path) or [] if isinstance(one, dict)]
        sources = tuple(
            [Citation(title=str(one.get("filename") or ""), quote=str(one.get("text") or "")) for one in found]
        )
        known |= {"queries"}
    else:
        code, outputs = get_text(node, "code", path), get_list(node, "outputs", path) or []
        logs = [one["logs"] for one in outputs if isinstance(one, dict) and isinstance(one.get("logs"), str)]
        arguments, text = {} if code is None else {"code": code}, "".join(logs)
        known |= {"code", *(["outputs"] if len(logs) == len(outputs) else [])}
    if arguments.get("type") == "open_page" and isinstance(arguments.get("url"), str):
        tool, arguments = "web_fetch", {"url": arguments["url"]}
    origin = read_item_origin(reading, node, path, known)
    call = ProviderCall(id, tool, encode_text(arguments) if arguments else "", origin)
    return (call, ProviderResult(id, tool, sources, text, origin=origin)) if sources or text else (call,)


def _read_search(node: Object, path: Path) -> tuple[Object, tuple[Citation, ...]]:
    action = get_object(node, "action", path) or {}
    found = get_list(action, "sources", (path, "action")) or []
    sources: tuple[Citation, ...] = ()
    if all(isinstance(one, dict) and one.keys() <= {"type", "url", "title"} and one.get("url") for one in found):
        sources = tuple([Citation(str(one["url"]), str(one.get("title") or "")) for one in found])
        action = {key: value for key, value in action.items() if key != "sources"}
    return _simplify_search(action), sources


def _simplify_search(action: Object) -> Object:
    """The arguments of a search as in other protocols: `queries` beside `query` only where there are several."""
    if action.get("type", "search") != "search":
        return action
    plain = {key: value for key, value in action.items() if key != "type" and value not in (None, "", [])}
    queries = plain.get("queries")
    if isinstance(queries, list) and queries:
        plain.setdefault("query", queries[0])
        if queries == [plain["query"]]:
            del plain["queries"]
    return plain


def write_provider_item(
    call: ProviderCall, result: ProviderResult | None, ledger: Ledger, id: str, status: str = "completed"
) -> Object:
    """The item of a provider's own tool."""
    arguments = decode_object_or_none(call.arguments)
    if arguments is None:
        what = f"the arguments of {call.tool!r} are not an object and were wrapped"
        ledger.note("arguments-wrapped", source_path(call), what)
        arguments = {RAW_ARGUMENTS_KEY: call.arguments}
    out: Object = {"type": names.PROVIDER_ITEM_BY_TOOL[call.tool][0], "id": id, "status": status}
    found = ProviderResult(call.id, call.tool) if result is None else result
    if call.tool == "code_execution":
        out |= {"code": arguments.get("code"), "container_id": ""}
        out["outputs"] = [{"type": "logs", "logs": found.text}] if found.text else None
        if arguments.keys() - {"code"}:
            what = "everything about the executed code but its text was left out"
            ledger.note("no-counterpart", source_path(call), what)
    elif call.tool == "file_search":
        out["queries"] = arguments.get("queries") or []
        out["results"] = [{"filename": one.title, "text": one.quote} for one in found.sources] or None
        if found.text:
            ledger.note("part-dropped", source_path(found), "the text that a file search found was left out")
        for one in found.sources:
            if one.url:
                what = f"the address `{one.url}` of a file was left out"
                ledger.note("citation-mapped", source_path(one) or source_path(found), what)
    else:
        out["action"] = _write_search(call, arguments, found, ledger)
    if found.error:
        ledger.note("part-dropped", source_path(found), f"the error `{found.error}` of {call.tool!r} was left out")
    return restore_original_keys(out, call.origin, NAME)


def _write_search(call: ProviderCall, arguments: Object, found: ProviderResult, ledger: Ledger) -> Object:
    """The action of a web search: a search or an opened page, and the sources that were found."""
    queries = search_queries(call.arguments)
    action: Object = {"type": "search", **arguments, "query": queries[0] if queries else "", "queries": queries}
    if "type" in arguments:
        action = dict(arguments)
    elif call.tool == "web_fetch":
        action = {"type": "open_page", "url": arguments.get("url")}
        if ledger.source != NAME:
            ledger.note("tool-mapped", source_path(call), "a fetched page became an opened page of a search")
    if found.sources:
        action["sources"] = [{"type": "url", "url": one.url} for one in found.sources]
    for one in found.sources:
        if one.title or one.quote:
            what = f"everything about the source {one.url!r} but its URL was left out"
            ledger.note("citation-mapped", source_path(one) or source_path(found), what)
    if found.text:
        ledger.note("part-dropped", source_path(found), f"the text that {call.tool!r} found was left out")
    return action


# --- any item of the model ------------------------------------------------------------------------------------------


def read_model_item(node: Object, path: Path, reading: ReadContext) -> tuple[Part, ...]:
    """The parts of an item that is not a message: one, or two for a provider's tool with its results."""
    kind = get_text(node, "type", path) or "item"
    shape = names.SHAPE_BY_CALL_TYPE.get(kind)
    if shape is not None and not is_run_by_provider(node):
        return (read_call(node, path, shape, reading),)
    if kind == "reasoning":
        return (read_reasoning(node, path, reading),)
    if kind in names.PROVIDER_ITEMS:
        return read_provider_item(node, path, reading)
    if kind == "image_generation_call" and isinstance(node.get("result"), str):
        known = frozenset({"type", "id", "status", "result", "output_format"})
        mime = f"image/{node.get('output_format') or 'png'}"
        return (Media("image", mime, node["result"], origin=read_item_origin(reading, node, path, known)),)
    return (Opaque(kind, Origin(NAME, path, node)),)
