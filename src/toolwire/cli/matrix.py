"""`toolwire matrix`: the same tool call, declaration and result in every protocol, side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.resources import files
from itertools import zip_longest
from typing import Any

import msgspec

from toolwire.cli import CommandError, terminal
from toolwire.core.codec import Codec
from toolwire.core.ir import Call, ProviderTool, Request, Result, Role, Text, Tool, Turn
from toolwire.core.json_values import Json, decode, encode, encode_text
from toolwire.core.losses import Ledger
from toolwire.protocols import CODECS, UnknownProtocol, find_codec

PIECES = ("declaration", "hosted", "call", "result", "final")
MIN_COLUMN_WIDTH = 34


class Scenario(msgspec.Struct, frozen=True):
    """One tool and one use of it, in no protocol's words."""

    scenario: str
    name: str
    description: str
    parameters: dict[str, Any]
    id: str
    arguments: dict[str, Any]
    result: str
    prompt: str
    before: str = ""
    final: str = ""
    hosted: str = ""
    """The tool that some providers run themselves instead."""


def load_scenarios() -> tuple[Scenario, ...]:
    data = files("toolwire.cli").joinpath("scenarios.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Scenario, ...])


def write_pieces(scenario: Scenario, codec: Codec) -> dict[str, Json]:
    """A scenario in one protocol: the tool's declaration, the call, its result, and the answer that follows."""
    call = Call(scenario.id, scenario.name, encode_text(scenario.arguments))
    before = (Text(scenario.before),) if scenario.before else ()
    result = Result(scenario.id, (Text(scenario.result),), name=scenario.name)
    role: Role = "user" if codec.constraints.result_placement == "user" else "tool"
    tool = Tool(scenario.name, scenario.description, scenario.parameters)
    found: dict[str, Json] = {"declaration": {"tools": _write_request(Request(tools=(tool,)), codec)["tools"]}}
    if scenario.hosted and (own := _write_request(Request(tools=(ProviderTool(scenario.hosted),)), codec).get("tools")):
        found["hosted"] = {"tools": own}
    calls = Turn("assistant", (*before, call))
    found["call"] = _write_turns((calls,), codec)
    # The call stands before its result, because some wires name the tool by the call.
    ahead = len(_write_turn_list((calls,), codec))
    found["result"] = _unwrap_single(_write_turn_list((calls, Turn(role, (result,))), codec)[ahead:])
    if scenario.final:
        found["final"] = _write_turns((Turn("assistant", (Text(scenario.final),)),), codec)
    return found


def _write_turns(turns: tuple[Turn, ...], codec: Codec) -> Json:
    return _unwrap_single(_write_turn_list(turns, codec))


def _unwrap_single(items: list[Json]) -> Json:
    """One item as it is, several as a list."""
    return items[0] if len(items) == 1 else items


def _write_turn_list(turns: tuple[Turn, ...], codec: Codec) -> list[Json]:
    written: list[Json] = _write_request(Request(turns=turns), codec)[codec.constraints.turns_key]
    return written


def _write_request(request: Request, codec: Codec) -> dict[str, Any]:
    body: dict[str, Any] = decode(encode(codec.write_request(request, Ledger("", codec.name))))
    return body


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", help="one scenario only, by its name")
    parser.add_argument("--protocol", action="append", metavar="P", help="this protocol only; may be repeated")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace) -> int:
    known = {scenario.scenario: scenario for scenario in load_scenarios()}
    if args.scenario and args.scenario not in known:
        raise CommandError(f"no scenario is called {args.scenario!r}", f"there are {', '.join(known)}")
    wanted = [known[args.scenario]] if args.scenario else list(known.values())
    try:
        rooms = [find_codec(name) for name in args.protocol or CODECS]
    except UnknownProtocol as unknown:
        raise CommandError(str(unknown), "protocols are named with --protocol") from None
    if args.json:
        whole = {one.scenario: {place.name: write_pieces(one, place) for place in rooms} for one in wanted}
        sys.stdout.write(msgspec.json.format(encode(whole), indent=2).decode() + "\n")
        return 0
    for scenario in wanted:
        sys.stdout.writelines(_scenario_page(scenario, rooms))
    return 0


def _scenario_page(scenario: Scenario, codecs: list[Codec]) -> Iterator[str]:
    yield terminal.paint_text(f"━━ {scenario.scenario} ", "head", sys.stdout) + f"“{scenario.prompt}”\n\n"
    written = {place.name: write_pieces(scenario, place) for place in codecs}
    columns = max(1, min(len(codecs), terminal.terminal_width() // MIN_COLUMN_WIDTH))
    size = terminal.terminal_width() // columns - 2
    for piece in PIECES:
        shown = [(name, parts[piece]) for name, parts in written.items() if piece in parts]
        for start in range(0, len(shown), columns):
            yield from _piece_row(piece, shown[start : start + columns], size)


def _piece_row(piece: str, shown: list[tuple[str, Json]], size: int) -> Iterator[str]:
    heads = [f"{piece} · {name}"[:size].ljust(size) for name, _ in shown]
    yield "  ".join(terminal.paint_text(head, "ok", sys.stdout) for head in heads).rstrip() + "\n"
    blocks = [_json_lines(value, size) for _, value in shown]
    for line in zip_longest(*blocks, fillvalue=""):
        yield "  ".join(cell.ljust(size) for cell in line).rstrip() + "\n"
    yield "\n"


def _json_lines(value: Json, size: int) -> list[str]:
    text = msgspec.json.format(encode(value), indent=1).decode()
    return [part for line in text.splitlines() for part in _wrap_line(line, size)]


def _wrap_line(line: str, size: int) -> list[str]:
    return [line[start : start + size] for start in range(0, len(line), size)] or [""]
