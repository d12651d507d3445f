"""`toolwire check TOOLS.json`: what each provider would make of these tools: rejected, renamed, rewritten, dropped."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from toolwire.cli import Complaint, files, screen
from toolwire.conformance.strict import complaints
from toolwire.exchange import Exchange
from toolwire.gateway.settings.problems import meant
from toolwire.gateway.settings.providers import rows as servers
from toolwire.gateway.settings.routing import variant
from toolwire.ir import AnyTool, Opaque, Request, Text, Tool, Turn, changed
from toolwire.loss import Ledger, Loss
from toolwire.options import Options
from toolwire.policy.match import named
from toolwire.protocols import ROOMS, UnknownProtocol, room
from toolwire.room import Room
from toolwire.wire import Json, Malformed, Object, decode, encode

REJECTED = 1
REFUSED = ("rejected", "dropped")
"""Verdicts on tools that the model would not have."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="TOOLS.json", help="a list of tools, or a body that holds `tools`")
    parser.add_argument("--for", dest="target", metavar="P", help="this protocol or well-known provider only")
    parser.add_argument("--from", dest="source", metavar="P", help="the protocol the tools are in (default: found out)")
    parser.add_argument("--model", default="", help="the model that would be asked")


def run(chosen: argparse.Namespace) -> int:
    try:
        given = decode(files.read(chosen.file))
        targets = dict([_target(chosen.target)]) if chosen.target else ROOMS
        sources = [room(chosen.source)] if chosen.source else list(ROOMS.values())
    except Malformed as bad:
        raise Complaint(
            f"{chosen.file or 'the input'}: {bad}", "tools are a JSON array, or an object with `tools`"
        ) from None
    except UnknownProtocol as unknown:
        near = meant(chosen.target or "", [*ROOMS, *servers()])
        hint = near if near.startswith("did") else "protocols are named with --for and --from"
        raise Complaint(str(unknown), hint) from None
    source, request = found(given, sources)
    rejected = False
    for title, target in targets.items():
        rows = verdicts(source, request, target, chosen.model)
        rejected |= any(row[0] == "rejected" for row in rows)
        sys.stdout.write(screen.paint(f"{title}\n", "head", sys.stdout))
        colours = [{"ok": "ok", "rejected": "lost", "dropped": "lost"}.get(row[0], "changed") for row in rows]
        sys.stdout.write(screen.table([(f"  {row[0]}", *row[1:]) for row in rows], colours))
        missing = dict.fromkeys(row[1] for row in rows if row[0] in REFUSED and row[1])
        sys.stdout.write(f"  cannot take: {', '.join(missing)}\n" if missing else "")
    return REJECTED if rejected else 0


def _target(name: str) -> tuple[str, Room]:
    """A protocol, or a well-known server with what is special about it."""
    server = servers().get(name)
    if server is None or name in ROOMS:
        place = room(name)
        return place.name, place
    return f"{name} ({server.protocols[0]})", variant(server.protocols[0], server.quirks)


def found(given: Json, sources: Sequence[Room]) -> tuple[Room, Request]:
    """The tools, read by the room that understands them best."""
    tools = given.get("tools") if isinstance(given, dict) and "tools" in given else given
    if isinstance(tools, dict):
        tools = [tools]
    if not isinstance(tools, list):
        raise Complaint("these are no tools", "give a JSON array of tools, or an object with `tools`")
    tried: list[tuple[int, int, Room, Request]] = []
    problem: Malformed | None = None
    for rank, place in enumerate(sources):
        for spelled in (tools, _respelled(tools)):
            try:
                request = place.read_request({place.rules.turns_key: [], "tools": spelled})
            except Malformed as bad:
                problem = problem or bad
                continue
            doubts = len(request.strays) + 9 * sum(isinstance(tool, Opaque) for tool in request.tools)
            tried.append((doubts + 9 * (not request.tools and bool(tools)), rank, place, request))
    if not tried:
        raise Complaint(f"no protocol reads these tools: {problem}", "name their protocol with --from") from None
    _, _, place, request = min(tried, key=lambda row: row[:2])
    return place, request


def _respelled(tools: list[Json]) -> list[Json]:
    """Tools as servers of the Model Context Protocol list them, and functions without anything around them."""
    return [_plainly(tool) if isinstance(tool, dict) else tool for tool in tools]


def _plainly(tool: Object) -> Object:
    if "inputSchema" in tool:
        return {"name": tool.get("name"), "description": tool.get("description"), "input_schema": tool["inputSchema"]}
    if "parameters" in tool and not tool.keys() & {"type", "function"}:
        return {"type": "function", "function": tool}
    return tool


def verdicts(source: Room, request: Request, target: Room, model: str) -> list[tuple[str, str, str]]:
    """One row a finding: the verdict, the tool, and the reason."""
    asked = changed(request, turns=(Turn("user", (Text("Hello."),)),), model=model or "model")
    wire = source.write_request(changed(asked), Ledger(source.name, source.name))
    translation = Exchange(source, target, Options(model=model)).request(encode(wire))
    rows = [
        (_verdict(loss), _tool_at(loss.path, request), f"{loss.what}: {loss.why}")
        for loss in translation.losses
        if _is_tool(loss)
    ]
    refused = [complaint for complaint in complaints(target.name, translation.json()) if "tool" in complaint]
    # Where nothing is translated, the places are those of the file; elsewhere the provider's own tools stand apart.
    tools = [tool for tool in request.tools if isinstance(tool, Tool) or source.name == target.name]
    rows += [("rejected", _tool_in(complaint, tools), complaint) for complaint in refused]
    return rows or [("ok", f"{len(request.tools)} tools", "taken as they are")]


def _is_tool(loss: Loss) -> bool:
    return "/tools" in loss.path or loss.path.startswith("/tools")


def _verdict(loss: Loss) -> str:
    words = {
        "name-rewritten": "renamed",
        "namespace-flattened": "renamed",
        "tool-dropped": "dropped",
        "opaque-dropped": "dropped",
    }
    return words.get(loss.code, {"lost": "left out", "changed": "rewritten", "added": "added"}[loss.severity])


def _tool_at(path: str, request: Request) -> str:
    number = next((int(key) for key in path.split("/") if key.isdigit()), None)
    return _named(number, request.tools) or path


_NUMBER = re.compile(r"(?:tools|function_declarations)\[(\d+)\](?!.*(?:tools|function_declarations)\[)")


def _tool_in(complaint: str, tools: Sequence[AnyTool]) -> str:
    """The tool that a complaint speaks of, when it names a place."""
    found = _NUMBER.search(complaint)
    return _named(int(found[1]), tools) if found else ""


def _named(number: int | None, tools: Sequence[AnyTool]) -> str:
    return named(tools[number]).name if number is not None and number < len(tools) else ""
