"""`toolwire matrix`: the same tool call, declaration and result in every protocol, side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib.resources import files
from itertools import zip_longest
from typing import Any

import msgspec

from toolwire.cli import Complaint, screen
from toolwire.ir import Call, HostedTool, Request, Result, Role, Text, Tool, Turn
from toolwire.loss import Ledger
from toolwire.protocols import ROOMS, UnknownProtocol, room
from toolwire.room import Room
from toolwire.wire import Json, decode, encode, encode_text

PIECES = ("declaration", "hosted", "call", "result", "final")
NARROWEST = 34


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


def scenarios() -> tuple[Scenario, ...]:
    data = files("toolwire.cli").joinpath("scenarios.json").read_bytes()
    return msgspec.json.decode(data, type=tuple[Scenario, ...])


def pieces(scenario: Scenario, place: Room) -> dict[str, Json]:
    """A scenario in one protocol: the tool's declaration, the call, its result, and the answer that follows."""
    call = Call(scenario.id, scenario.name, encode_text(scenario.arguments))
    before = (Text(scenario.before),) if scenario.before else ()
    result = Result(scenario.id, (Text(scenario.result),), name=scenario.name)
    role: Role = "user" if place.rules.results == "user" else "tool"
    tool = Tool(scenario.name, scenario.description, scenario.parameters)
    found: dict[str, Json] = {"declaration": {"tools": _written(Request(tools=(tool,)), place)["tools"]}}
    if scenario.hosted and (own := _written(Request(tools=(HostedTool(scenario.hosted),)), place).get("tools")):
        found["hosted"] = {"tools": own}
    calls = Turn("assistant", (*before, call))
    found["call"] = _conversation((calls,), place)
    # The call stands before its result, because some wires name the tool by the call.
    ahead = len(_turns((calls,), place))
    found["result"] = _alone(_turns((calls, Turn(role, (result,))), place)[ahead:])
    if scenario.final:
        found["final"] = _conversation((Turn("assistant", (Text(scenario.final),)),), place)
    return found


def _conversation(turns: tuple[Turn, ...], place: Room) -> Json:
    return _alone(_turns(turns, place))


def _alone(items: list[Json]) -> Json:
    """One item as it is, several as a list."""
    return items[0] if len(items) == 1 else items


def _turns(turns: tuple[Turn, ...], place: Room) -> list[Json]:
    written: list[Json] = _written(Request(turns=turns), place)[place.rules.turns_key]
    return written


def _written(request: Request, place: Room) -> dict[str, Any]:
    body: dict[str, Any] = decode(encode(place.write_request(request, Ledger("", place.name))))
    return body


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", nargs="?", help="one scenario only, by its name")
    parser.add_argument("--protocol", action="append", metavar="P", help="this protocol only; may be repeated")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(chosen: argparse.Namespace) -> int:
    known = {scenario.scenario: scenario for scenario in scenarios()}
    if chosen.scenario and chosen.scenario not in known:
        raise Complaint(f"no scenario is called {chosen.scenario!r}", f"there are {', '.join(known)}")
    wanted = [known[chosen.scenario]] if chosen.scenario else list(known.values())
    try:
        rooms = [room(name) for name in chosen.protocol or ROOMS]
    except UnknownProtocol as unknown:
        raise Complaint(str(unknown), "protocols are named with --protocol") from None
    if chosen.json:
        whole = {one.scenario: {place.name: pieces(one, place) for place in rooms} for one in wanted}
        sys.stdout.write(msgspec.json.format(encode(whole), indent=2).decode() + "\n")
        return 0
    for scenario in wanted:
        sys.stdout.writelines(_page(scenario, rooms))
    return 0


def _page(scenario: Scenario, rooms: list[Room]) -> Iterator[str]:
    yield screen.paint(f"━━ {scenario.scenario} ", "head", sys.stdout) + f"“{scenario.prompt}”\n\n"
    written = {place.name: pieces(scenario, place) for place in rooms}
    columns = max(1, min(len(rooms), screen.width() // NARROWEST))
    size = screen.width() // columns - 2
    for piece in PIECES:
        shown = [(name, parts[piece]) for name, parts in written.items() if piece in parts]
        for start in range(0, len(shown), columns):
            yield from _row(piece, shown[start : start + columns], size)


def _row(piece: str, shown: list[tuple[str, Json]], size: int) -> Iterator[str]:
    heads = [f"{piece} · {name}"[:size].ljust(size) for name, _ in shown]
    yield "  ".join(screen.paint(head, "ok", sys.stdout) for head in heads).rstrip() + "\n"
    blocks = [_lines(value, size) for _, value in shown]
    for line in zip_longest(*blocks, fillvalue=""):
        yield "  ".join(cell.ljust(size) for cell in line).rstrip() + "\n"
    yield "\n"


def _lines(value: Json, size: int) -> list[str]:
    text = msgspec.json.format(encode(value), indent=1).decode()
    return [part for line in text.splitlines() for part in _folded(line, size)]


def _folded(line: str, size: int) -> list[str]:
    return [line[start : start + size] for start in range(0, len(line), size)] or [""]
