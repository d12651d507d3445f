"""`toolwire tools`: the tools that agents bring, and the names and parameters by which each agent knows them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import msgspec

from toolwire.cli import Complaint, screen
from toolwire.gateway.settings.catalogue import Catalogue, Entry, Known, Parameter, catalogue
from toolwire.gateway.settings.problems import nearest
from toolwire.wire import Json, encode

NONE = "–"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one tool with its parameters, by any of its names")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(chosen: argparse.Namespace) -> int:
    known = catalogue()
    tools = found(known, chosen.name) if chosen.name else dict(known.tools)
    if chosen.json:
        whole = {name: as_json(known, entry) for name, entry in tools.items()}
        sys.stdout.write(msgspec.json.format(encode(whole), indent=2).decode() + "\n")
    elif chosen.name:
        sys.stdout.write("\n".join("".join(page(known, name, entry)) for name, entry in tools.items()))
    else:
        rows = [("tool", *(agent.title for agent in known.agents.values())), *table(known)]
        sys.stdout.write(screen.table(rows, ["head"]))
    return 0


def found(known: Catalogue, name: str) -> dict[str, Entry]:
    """The tools of one name, their own or an agent's."""
    tools = dict(known.named(name))
    if not tools:
        names = {*known.tools, *(row.name for entry in known.tools.values() for row in entry.known)}
        near = nearest(name, sorted(names))
        hint = f"did you mean `{near}`?" if near else "`toolwire tools` lists what there is"
        raise Complaint(f"no tool is called {name!r}", hint)
    return tools


def table(known: Catalogue) -> Iterator[tuple[str, ...]]:
    """A row a tool: its own name, and what each agent calls it, older names in brackets."""
    for name, entry in known.tools.items():
        yield name, *(_called(entry.by(agent)) for agent in known.agents)


def _called(rows: tuple[Known, ...]) -> str:
    now = ", ".join(row.name for row in rows if not row.older)
    before = ", ".join(row.name for row in rows if row.older)
    return " ".join(part for part in (now, f"({before})" if before else "") if part) or NONE


def page(known: Catalogue, name: str, entry: Entry) -> Iterator[str]:
    """One tool: what it does, and every agent's spelling of it."""
    yield f"{screen.paint(name, 'head', sys.stdout)}  {entry.about}\n"
    for agent, its in known.agents.items():
        for row in entry.by(agent):
            marks = [
                mark for mark in (row.kind if row.kind != "function" else "", "older" if row.older else "") if mark
            ]
            of = f" of {row.namespace}" if row.namespace else ""
            said = f" ({', '.join(marks)})" if marks else ""
            yield f"\n{its.title}: {screen.paint(row.name, 'ok', sys.stdout)}{of}{said}\n"
            yield screen.table([_line(entry, one) for one in row.parameters])


def _line(entry: Entry, one: Parameter) -> tuple[str, str, str, str]:
    marks = [mark for mark, given in (("required", one.required), ("older", one.older)) if given]
    return f"  {one.name}", typed(one), ", ".join(marks), entry.said(one)


def typed(one: Parameter) -> str:
    return f"{one.type} of {one.of}" if one.of else one.type


def as_json(known: Catalogue, entry: Entry) -> Json:
    """One tool as data, every parameter with its meaning."""
    agents = {agent: [_row(entry, row) for row in entry.by(agent)] for agent in known.agents}
    return {"about": entry.about, "agents": {agent: rows for agent, rows in agents.items() if rows}}


def _row(entry: Entry, row: Known) -> Json:
    parameters = [
        {
            "name": one.name,
            "type": one.type,
            **({"items": one.of} if one.of else {}),
            "required": one.required,
            "older": one.older,
            "means": entry.said(one),
        }
        for one in row.parameters
    ]
    space = {"namespace": row.namespace} if row.namespace else {}
    return {"name": row.name, "kind": row.kind, **space, "older": row.older, "parameters": parameters}
