"""`toolwire demo matrix`: the same tool declaration, call and result in every protocol, side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.resources import files
from itertools import zip_longest
from typing import Any

import msgspec

from toolwire import terminal
from toolwire.cli import usage
from toolwire.core.codec import Codec
from toolwire.core.ir import Call, ProviderTool, Request, Result, Role, Text, Tool, Turn
from toolwire.core.json_values import Json, decode, encode, encode_text
from toolwire.core.losses import Ledger
from toolwire.protocols import CODECS
from toolwire.terminal import CommandError
from toolwire.terminal.text import chop_text, pad_text, shorten_text

PIECES = ("declaration", "hosted", "call", "result", "final")
MIN_COLUMN_WIDTH = 34


class Scenario(msgspec.Struct, frozen=True):
    """One tool and one use of it, independent of any protocol."""

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
    """The equivalent tool that some providers run themselves."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help="show only this scenario")
    parser.add_argument(
        "--protocol", action="append", metavar="PROTOCOL", help="show only this protocol; may be repeated"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    known = {scenario.scenario: scenario for scenario in load_scenarios()}
    if args.scenario and args.scenario not in known:
        raise CommandError(f"unknown scenario `{args.scenario}`", usage.suggest_name(args.scenario, known))
    scenarios = [known[args.scenario]] if args.scenario else list(known.values())
    codecs = [usage.find_protocol(name, "--protocol") for name in args.protocol or CODECS]
    if args.json:
        document = {one.scenario: {codec.name: write_pieces(one, codec) for codec in codecs} for one in scenarios}
        sys.stdout.write(terminal.format_json(document))
        return 0
    for scenario in scenarios:
        sys.stdout.writelines(_scenario_page(scenario, codecs))
    return 0


def load_scenarios() -> tuple[Scenario, ...]:
    data = files("toolwire.cli.translation").joinpath("scenarios.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Scenario, ...])


def write_pieces(scenario: Scenario, codec: Codec) -> dict[str, Json]:
    """A scenario in one protocol: the tool's declaration, the call, its result, and the final answer."""
    call = Call(scenario.id, scenario.name, encode_text(scenario.arguments))
    before = (Text(scenario.before),) if scenario.before else ()
    result = Result(scenario.id, (Text(scenario.result),), name=scenario.name)
    role: Role = "user" if codec.constraints.result_placement == "user" else "tool"
    tool = Tool(scenario.name, scenario.description, scenario.parameters)
    key = codec.constraints.tools_key
    pieces: dict[str, Json] = {"declaration": {key: _write_request(Request(tools=(tool,)), codec)[key]}}
    hosted = Request(tools=(ProviderTool(scenario.hosted),)) if scenario.hosted else Request()
    if hosted_tools := _write_request(hosted, codec).get(key):
        pieces["hosted"] = {key: hosted_tools}
    call_turn = Turn("assistant", (*before, call))
    written_call = _write_turns((call_turn,), codec)
    pieces["call"] = _unwrap_single(written_call)
    # The call is written before its result, because Gemini takes the result's name from the call.
    pieces["result"] = _unwrap_single(_write_turns((call_turn, Turn(role, (result,))), codec)[len(written_call) :])
    if scenario.final:
        pieces["final"] = _unwrap_single(_write_turns((Turn("assistant", (Text(scenario.final),)),), codec))
    return pieces


def _unwrap_single(items: list[Json]) -> Json:
    """One item as it is, several as a list."""
    return items[0] if len(items) == 1 else items


def _write_turns(turns: tuple[Turn, ...], codec: Codec) -> list[Json]:
    written: list[Json] = _write_request(Request(turns=turns), codec)[codec.constraints.turns_key]
    return written


def _write_request(request: Request, codec: Codec) -> dict[str, Any]:
    body: dict[str, Any] = decode(encode(codec.write_request(request, Ledger("", codec.name))))
    return body


def _scenario_page(scenario: Scenario, codecs: list[Codec]) -> Iterator[str]:
    yield terminal.paint_text(f"━━ {scenario.scenario} ", "head") + f"“{scenario.prompt}”\n\n"
    written = {codec.name: write_pieces(scenario, codec) for codec in codecs}
    columns = max(1, min(len(codecs), terminal.terminal_width() // MIN_COLUMN_WIDTH))
    width = terminal.terminal_width() // columns - 2
    for piece in PIECES:
        shown = [(name, pieces[piece]) for name, pieces in written.items() if piece in pieces]
        for start in range(0, len(shown), columns):
            yield from _piece_row(piece, shown[start : start + columns], width)


def _piece_row(piece: str, shown: list[tuple[str, Json]], width: int) -> Iterator[str]:
    heads = [terminal.paint_text(shorten_text(f"{piece} · {name}", width), "ok") for name, _ in shown]
    yield "  ".join(pad_text(head, width) for head in heads).rstrip() + "\n"
    columns = []
    for _, value in shown:
        text = msgspec.json.format(encode(value), indent=1).decode()
        cells = [part for line in text.splitlines() for part in chop_text(line, width)]
        columns.append(cells)
    for line in zip_longest(*columns, fillvalue=""):
        yield "  ".join(pad_text(cell, width) for cell in line).rstrip() + "\n"
    yield "\n"
