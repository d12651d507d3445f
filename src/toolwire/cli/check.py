"""`toolwire check TOOLS.json`: what each provider would make of these tools: rejected, renamed, rewritten, dropped."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from toolwire.cli import CommandError, terminal
from toolwire.conformance.strict import find_violations
from toolwire.core.codec import Codec
from toolwire.core.ir import AnyTool, Opaque, Request, Text, Tool, Turn, replace_fields
from toolwire.core.json_values import Json, Malformed, Object, decode, encode
from toolwire.core.losses import Ledger, Loss
from toolwire.gateway.config.problems import suggest_name
from toolwire.gateway.config.providers import known_servers as servers
from toolwire.gateway.pipeline.route import codec_with_quirks
from toolwire.policy.rules import tool_name
from toolwire.protocols import CODECS, UnknownProtocol, find_codec
from toolwire.translation.exchange import Exchange
from toolwire.translation.options import Options

EXIT_REJECTED = 1
REFUSED_VERDICTS = ("rejected", "dropped")
"""Verdicts on tools that the model would not have."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="TOOLS.json", help="a list of tools, or a body that holds `tools`")
    parser.add_argument("--for", dest="target", metavar="P", help="this protocol or well-known provider only")
    parser.add_argument("--from", dest="source", metavar="P", help="the protocol the tools are in (default: found out)")
    parser.add_argument("--model", default="", help="the model that would be asked")


def run(args: argparse.Namespace) -> int:
    try:
        given = decode(terminal.read_input(args.file))
        targets = dict([_find_target(args.target)]) if args.target else CODECS
        sources = [find_codec(args.source)] if args.source else list(CODECS.values())
    except Malformed as bad:
        raise CommandError(
            f"{args.file or 'the input'}: {bad}", "tools are a JSON array, or an object with `tools`"
        ) from None
    except UnknownProtocol as unknown:
        near = suggest_name(args.target or "", [*CODECS, *servers()])
        hint = near if near.startswith("did") else "protocols are named with --for and --from"
        raise CommandError(str(unknown), hint) from None
    source, request = read_tools(given, sources)
    rejected = False
    for title, target in targets.items():
        rows = tool_verdicts(source, request, target, args.model)
        rejected |= any(row[0] == "rejected" for row in rows)
        sys.stdout.write(terminal.paint_text(f"{title}\n", "head", sys.stdout))
        colours = [{"ok": "ok", "rejected": "lost", "dropped": "lost"}.get(row[0], "changed") for row in rows]
        sys.stdout.write(terminal.format_table([(f"  {row[0]}", *row[1:]) for row in rows], colours))
        missing = dict.fromkeys(row[1] for row in rows if row[0] in REFUSED_VERDICTS and row[1])
        sys.stdout.write(f"  cannot take: {', '.join(missing)}\n" if missing else "")
    return EXIT_REJECTED if rejected else 0


def _find_target(name: str) -> tuple[str, Codec]:
    """A protocol, or a well-known server with what is special about it."""
    server = servers().get(name)
    if server is None or name in CODECS:
        place = find_codec(name)
        return place.name, place
    return f"{name} ({server.protocols[0]})", codec_with_quirks(server.protocols[0], server.quirks)


def read_tools(given: Json, sources: Sequence[Codec]) -> tuple[Codec, Request]:
    """The tools, read by the room that understands them best."""
    tools = given.get("tools") if isinstance(given, dict) and "tools" in given else given
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list):
        raise CommandError("these are no tools", "give a JSON array of tools, or an object with `tools`")
    tried: list[tuple[int, int, Codec, Request]] = []
    problem: Malformed | None = None
    for rank, place in enumerate(sources):
        for spelled in (tools, _normalise_tools(tools)):
            try:
                request = place.read_request({place.constraints.turns_key: [], "tools": spelled})
            except Malformed as bad:
                problem = problem or bad
                continue
            doubts = len(request.unknown_fields) + 9 * sum(isinstance(tool, Opaque) for tool in request.tools)
            tried.append((doubts + 9 * (not request.tools and bool(tools)), rank, place, request))
    if not tried:
        raise CommandError(f"no protocol reads these tools: {problem}", "name their protocol with --from") from None
    _, _, place, request = min(tried, key=lambda row: row[:2])
    return place, request


def _normalise_tools(tools: list[Json]) -> list[Json]:
    """Tools as servers of the Model Context Protocol list them, and functions without anything around them."""
    return [_normalise_tool(tool) if isinstance(tool, dict) else tool for tool in tools]


def _normalise_tool(tool: Object) -> Object:
    if "inputSchema" in tool:
        return {"name": tool.get("name"), "description": tool.get("description"), "input_schema": tool["inputSchema"]}
    if "parameters" in tool and not tool.keys() & {"type", "function"}:
        return {"type": "function", "function": tool}
    return tool


def tool_verdicts(source: Codec, request: Request, target: Codec, model: str) -> list[tuple[str, str, str]]:
    """One row a finding: the verdict, the tool, and the reason."""
    asked = replace_fields(request, turns=(Turn("user", (Text("Hello."),)),), model=model or "model")
    wire = source.write_request(replace_fields(asked), Ledger(source.name, source.name))
    translation = Exchange(source, target, Options(model=model)).translate_request(encode(wire))
    rows = [
        (_verdict_word(loss), _tool_name_at(loss.path, request), f"{loss.what}: {loss.why}")
        for loss in translation.losses
        if _concerns_tool(loss)
    ]
    refused = [complaint for complaint in find_violations(target.name, translation.json()) if "tool" in complaint]
    # Where nothing is translated, the places are those of the file; elsewhere the provider's own tools stand apart.
    tools = [tool for tool in request.tools if isinstance(tool, Tool) or source.name == target.name]
    rows += [("rejected", _tool_name_in(complaint, tools), complaint) for complaint in refused]
    return rows or [("ok", f"{len(request.tools)} tools", "taken as they are")]


def _concerns_tool(loss: Loss) -> bool:
    return "/tools" in loss.path or loss.path.startswith("/tools")


def _verdict_word(loss: Loss) -> str:
    words = {
        "name-rewritten": "renamed",
        "namespace-flattened": "renamed",
        "tool-dropped": "dropped",
        "opaque-dropped": "dropped",
    }
    return words.get(loss.code, {"lost": "left out", "changed": "rewritten", "added": "added"}[loss.severity])


def _tool_name_at(path: str, request: Request) -> str:
    number = next((int(key) for key in path.split("/") if key.isdigit()), None)
    return _tool_name(number, request.tools) or path


_TOOL_INDEX = re.compile(r"(?:tools|function_declarations)\[(\d+)\](?!.*(?:tools|function_declarations)\[)")


def _tool_name_in(violation: str, tools: Sequence[AnyTool]) -> str:
    """The tool that a complaint speaks of, when it names a place."""
    found = _TOOL_INDEX.search(violation)
    return _tool_name(int(found[1]), tools) if found else ""


def _tool_name(number: int | None, tools: Sequence[AnyTool]) -> str:
    return tool_name(tools[number]).name if number is not None and number < len(tools) else ""
