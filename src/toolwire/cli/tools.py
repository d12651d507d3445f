"""`toolwire tools`: the tools that agents bring, and the names and parameters by which each agent knows them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

import msgspec

from toolwire.cli import CommandError, terminal
from toolwire.core.json_values import Json, encode
from toolwire.gateway.config.catalogue import AgentTool, Catalogue, CatalogueTool, Parameter, load_catalogue
from toolwire.gateway.config.problems import nearest_name

NO_NAME = "–"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one tool with its parameters, by any of its names")
    parser.add_argument("--json", action="store_true", help="as one JSON document")


def run(args: argparse.Namespace) -> int:
    known = load_catalogue()
    tools = find_tools(known, args.name) if args.name else dict(known.tools)
    if args.json:
        whole = {name: tool_document(known, entry) for name, entry in tools.items()}
        sys.stdout.write(msgspec.json.format(encode(whole), indent=2).decode() + "\n")
    elif args.name:
        sys.stdout.write("\n".join("".join(tool_page(known, name, entry)) for name, entry in tools.items()))
    else:
        rows = [("tool", *(agent.title for agent in known.agents.values())), *tool_rows(known)]
        sys.stdout.write(terminal.format_table(rows, ["head"]))
    return 0


def find_tools(known: Catalogue, name: str) -> dict[str, CatalogueTool]:
    """The tools of one name, their own or an agent's."""
    tools = dict(known.find_tools(name))
    if not tools:
        names = {*known.tools, *(row.name for entry in known.tools.values() for row in entry.known)}
        near = nearest_name(name, sorted(names))
        hint = f"did you mean `{near}`?" if near else "`toolwire tools` lists what there is"
        raise CommandError(f"no tool is called {name!r}", hint)
    return tools


def tool_rows(known: Catalogue) -> Iterator[tuple[str, ...]]:
    """A row a tool: its own name, and what each agent calls it, older names in brackets."""
    for name, entry in known.tools.items():
        yield name, *(_agent_names(entry.tools_of(agent)) for agent in known.agents)


def _agent_names(rows: tuple[AgentTool, ...]) -> str:
    now = ", ".join(row.name for row in rows if not row.older)
    before = ", ".join(row.name for row in rows if row.older)
    return " ".join(part for part in (now, f"({before})" if before else "") if part) or NO_NAME


def tool_page(known: Catalogue, name: str, entry: CatalogueTool) -> Iterator[str]:
    """One tool: what it does, and every agent's spelling of it."""
    yield f"{terminal.paint_text(name, 'head', sys.stdout)}  {entry.about}\n"
    for agent, its in known.agents.items():
        for row in entry.tools_of(agent):
            marks = [
                mark for mark in (row.kind if row.kind != "function" else "", "older" if row.older else "") if mark
            ]
            of = f" of {row.namespace}" if row.namespace else ""
            said = f" ({', '.join(marks)})" if marks else ""
            yield f"\n{its.title}: {terminal.paint_text(row.name, 'ok', sys.stdout)}{of}{said}\n"
            yield terminal.format_table([_parameter_row(entry, one) for one in row.parameters])


def _parameter_row(entry: CatalogueTool, one: Parameter) -> tuple[str, str, str, str]:
    marks = [mark for mark, given in (("required", one.required), ("older", one.older)) if given]
    return f"  {one.name}", type_text(one), ", ".join(marks), entry.parameter_meaning(one)


def type_text(one: Parameter) -> str:
    return f"{one.type} of {one.of}" if one.of else one.type


def tool_document(known: Catalogue, entry: CatalogueTool) -> Json:
    """One tool as data, every parameter with its meaning."""
    agents = {agent: [_agent_tool_document(entry, row) for row in entry.tools_of(agent)] for agent in known.agents}
    return {"about": entry.about, "agents": {agent: rows for agent, rows in agents.items() if rows}}


def _agent_tool_document(entry: CatalogueTool, row: AgentTool) -> Json:
    parameters = [
        {
            "name": one.name,
            "type": one.type,
            **({"items": one.of} if one.of else {}),
            "required": one.required,
            "older": one.older,
            "means": entry.parameter_meaning(one),
        }
        for one in row.parameters
    ]
    space = {"namespace": row.namespace} if row.namespace else {}
    return {"name": row.name, "kind": row.kind, **space, "older": row.older, "parameters": parameters}
