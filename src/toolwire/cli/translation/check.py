"""`toolwire check TOOLS.json`: what each provider would do with these tools: reject, rename, rewrite or drop them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from toolwire import terminal
from toolwire.cli import usage
from toolwire.core.codec import Codec
from toolwire.core.ir import AnyTool, Opaque, Request, Text, Tool, Turn, replace_fields
from toolwire.core.json_values import Json, Malformed, Object, decode, encode
from toolwire.core.losses import Ledger
from toolwire.gateway.settings.providers import known_servers
from toolwire.gateway.settings.router import codec_with_quirks
from toolwire.policy.rules import tool_name
from toolwire.protocols import CODECS
from toolwire.terminal import CommandError
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options
from toolwire_conformance.peers import find_violations

EXIT_REJECTED = 1
VERDICT_COLOURS = {"ok": "ok", "rejected": "lost", "dropped": "lost"}
VERDICT_BY_CODE = {
    "name-rewritten": "renamed",
    "namespace-flattened": "renamed",
    "tool-dropped": "dropped",
    "opaque-dropped": "dropped",
}
VERDICT_BY_SEVERITY = {"lost": "left out", "changed": "rewritten", "added": "added", "repaired": "repaired"}
UNUSABLE_VERDICTS = ("rejected", "dropped")
"""The model would not get tools with these verdicts."""
TOOL_INDEX = re.compile(r"(?:tools|function_declarations)\[(\d+)\](?!.*(?:tools|function_declarations)\[)")
DOUBT_WEIGHT = 9
"""How much more an unreadable tool counts than an unknown field, to tell the protocol of the tools."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", nargs="?", metavar="TOOLS.json", help="a list of tools, or a request that contains `tools`")
    add("--for", dest="target", metavar="PROTOCOL", help="check only this protocol or well-known provider")
    add("--from", dest="source", metavar="PROTOCOL", help="protocol of the tools (default: detected)")
    add("--model", default="", help="the model that would be asked")


def run(args: argparse.Namespace) -> int:
    targets = dict([_find_target(args.target)]) if args.target else CODECS
    sources = [usage.find_protocol(args.source, "--from")] if args.source else list(CODECS.values())
    try:
        value = decode(terminal.read_input(args.file))
    except Malformed as bad:
        hint = "tools are a JSON array, or an object with `tools`"
        raise CommandError(f"{args.file or 'the input'}: {bad}", hint) from None
    source, request = read_tools(value, sources)
    is_rejected = False
    for title, target in targets.items():
        rows = tool_verdicts(source, request, target, args.model)
        is_rejected |= any(row[0] == "rejected" for row in rows)
        sys.stdout.write(terminal.heading(title))
        colours = [VERDICT_COLOURS.get(row[0], "changed") for row in rows]
        sys.stdout.write(terminal.format_table([(f"  {row[0]}", *row[1:]) for row in rows], colours))
        unusable = dict.fromkeys(row[1] for row in rows if row[0] in UNUSABLE_VERDICTS and row[1])
        sys.stdout.write(f"  cannot use: {', '.join(unusable)}\n" if unusable else "")
    return EXIT_REJECTED if is_rejected else 0


def _find_target(name: str) -> tuple[str, Codec]:
    """A protocol, or a well-known server with its quirks."""
    server = known_servers().get(name)
    if server is None or name in CODECS:
        codec = usage.find_protocol(name, "--for", known_servers())
        return codec.name, codec
    return f"{name} ({server.protocols[0]})", codec_with_quirks(server.protocols[0], server.quirks)


def read_tools(value: Json, sources: Sequence[Codec]) -> tuple[Codec, Request]:
    """Read the tools with the codec that understands most of them."""
    tools = _find_tools(value)
    if isinstance(tools, dict):
        is_request = not tools.keys().isdisjoint(codec.constraints.turns_key for codec in CODECS.values())
        tools = [] if is_request or not tools else [tools]
    if not isinstance(tools, list) or not tools:
        raise CommandError("the input contains no tools", "give a JSON array of tools, or an object with `tools`")
    attempts: list[tuple[int, int, Codec, Request]] = []
    problem: Malformed | None = None
    for rank, codec in enumerate(sources):
        for candidate in (tools, [_normalise_tool(tool) if isinstance(tool, dict) else tool for tool in tools]):
            try:
                rules = codec.constraints
                declared = candidate if rules.tools_key == TOOLS_KEY else {TOOLS_KEY: candidate}
                request = codec.read_request({rules.turns_key: [], rules.tools_key: declared})
            except Malformed as bad:
                problem = problem or bad
                continue
            unreadable = sum(isinstance(tool, Opaque) for tool in request.tools) + (not request.tools and bool(tools))
            attempts.append((len(request.unknown_fields) + DOUBT_WEIGHT * unreadable, rank, codec, request))
    if not attempts:
        raise CommandError(f"no protocol reads these tools: {problem}", "name their protocol with --from") from None
    _, _, codec, request = min(attempts, key=lambda attempt: attempt[:2])
    return codec, request


TOOLS_KEY = "tools"
"""The list of tools, in a request or in the object of it that holds what is said of tools (Converse `toolConfig`)."""


def _find_tools(value: Json) -> Json:
    for codec in CODECS.values():
        if isinstance(value, dict) and codec.constraints.tools_key in value:
            value = value[codec.constraints.tools_key]
    return value[TOOLS_KEY] if isinstance(value, dict) and TOOLS_KEY in value else value


def _normalise_tool(tool: Object) -> Object:
    """Turn a tool as MCP servers list it, or a bare function, into a tool that a protocol knows."""
    if "inputSchema" in tool:
        return {"name": tool.get("name"), "description": tool.get("description"), "input_schema": tool["inputSchema"]}
    if "parameters" in tool and not tool.keys() & {"type", "function"}:
        return {"type": "function", "function": tool}
    return tool


def tool_verdicts(source: Codec, request: Request, target: Codec, model: str) -> list[tuple[str, str, str]]:
    """The verdict, the tool and the reason of each finding."""
    request_with_turn = replace_fields(request, turns=(Turn("user", (Text("Hello."),)),), model=model or "model")
    body = source.write_request(request_with_turn, Ledger(source.name, source.name))
    translation = Exchange(source, target, Options(model=model)).translate_request(encode(body))
    rows = []
    for loss in translation.losses:
        if "/tools" in loss.path:
            verdict = VERDICT_BY_CODE.get(loss.code) or VERDICT_BY_SEVERITY[loss.severity]
            index = next((int(key) for key in loss.path.split("/") if key.isdigit()), None)
            rows.append((verdict, _tool_name(index, request.tools) or loss.path, f"{loss.what}: {loss.why}"))
    # Within one protocol the indices are those of the file; a translation writes provider tools separately.
    tools = [tool for tool in request.tools if isinstance(tool, Tool) or source.name == target.name]
    for violation in find_violations(target.name, translation.json()):
        if "tool" in violation:
            found = TOOL_INDEX.search(violation)
            rows.append(("rejected", _tool_name(int(found[1]) if found else None, tools), violation))
    count = len(request.tools)
    return rows or [("ok", f"{count} tool{'' if count == 1 else 's'}", "accepted unchanged")]


def _tool_name(index: int | None, tools: Sequence[AnyTool]) -> str:
    return tool_name(tools[index]).name if index is not None and index < len(tools) else ""
