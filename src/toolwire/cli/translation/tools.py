"""`toolwire tools`: the tools of known coding agents, and the names and parameters that each agent uses for them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from toolwire import terminal
from toolwire.core.json_values import Json
from toolwire.gateway.settings.policies import AgentTool, Catalogue, CatalogueTool, Parameter, load_catalogue
from toolwire.gateway.settings.problems import nearest_name
from toolwire.terminal import CommandError

NO_NAME = "–"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    name = "show one tool with its parameters, by any of its names"
    parser.add_argument("name", nargs="?", metavar="NAME", help=name)
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    catalogue = load_catalogue()
    tools = find_tools(catalogue, args.name) if args.name else dict(catalogue.tools)
    if args.json:
        sys.stdout.write(terminal.format_json({name: tool_document(catalogue, tool) for name, tool in tools.items()}))
    elif args.name:
        sys.stdout.write("\n".join("".join(tool_page(catalogue, name, tool)) for name, tool in tools.items()))
    else:
        rows = [("tool", *(agent.title for agent in catalogue.agents.values())), *tool_rows(catalogue)]
        sys.stdout.write(terminal.format_table(rows, ["head"], has_header=True))
    return 0


def find_tools(catalogue: Catalogue, name: str) -> dict[str, CatalogueTool]:
    """The tools with this name, in the catalogue or in an agent."""
    tools = dict(catalogue.find_tools(name))
    if not tools:
        names = {*catalogue.tools, *(row.name for tool in catalogue.tools.values() for row in tool.known)}
        near = nearest_name(name, sorted(names))
        hint = f"did you mean `{near}`?" if near else "`toolwire tools` lists all tools"
        raise CommandError(f"unknown tool `{name}`", hint)
    return tools


def tool_rows(catalogue: Catalogue) -> Iterator[tuple[str, ...]]:
    """One row per tool: its name in the catalogue and in each agent, older names in brackets."""
    for name, tool in catalogue.tools.items():
        yield name, *(_agent_names(tool.tools_of(agent)) for agent in catalogue.agents)


def _agent_names(rows: tuple[AgentTool, ...]) -> str:
    current = ", ".join(row.name for row in rows if not row.older)
    older = ", ".join(row.name for row in rows if row.older)
    return " ".join(filter(None, (current, f"({older})" if older else ""))) or NO_NAME


def tool_page(catalogue: Catalogue, name: str, tool: CatalogueTool) -> Iterator[str]:
    """One tool: what it does, and its name and parameters in every agent."""
    yield terminal.format_table([(name, tool.about)], ["head"])
    for agent, settings in catalogue.agents.items():
        for row in tool.tools_of(agent):
            marks = filter(None, (row.kind if row.kind != "function" else "", "older" if row.older else ""))
            namespace = f" of {row.namespace}" if row.namespace else ""
            note = ", ".join(marks)
            title = terminal.paint_text(row.name, "ok") + namespace + (f" ({note})" if note else "")
            yield f"\n{settings.title}: {title}\n"
            rows = []
            for parameter in row.parameters:
                marks = filter(None, ("required" if parameter.required else "", "older" if parameter.older else ""))
                means = tool.parameter_meaning(parameter)
                rows.append((f"  {parameter.name}", type_text(parameter), ", ".join(marks), means))
            yield terminal.format_table(rows)


def type_text(parameter: Parameter) -> str:
    return f"{parameter.type} of {parameter.of}" if parameter.of else parameter.type


def tool_document(catalogue: Catalogue, tool: CatalogueTool) -> Json:
    agents = {agent: [_agent_tool_document(tool, row) for row in tool.tools_of(agent)] for agent in catalogue.agents}
    return {"about": tool.about, "agents": {agent: rows for agent, rows in agents.items() if rows}}


def _agent_tool_document(tool: CatalogueTool, row: AgentTool) -> Json:
    parameters = [
        {
            "name": parameter.name,
            "type": parameter.type,
            **({"items": parameter.of} if parameter.of else {}),
            "required": parameter.required,
            "older": parameter.older,
            "means": tool.parameter_meaning(parameter),
        }
        for parameter in row.parameters
    ]
    namespace = {"namespace": row.namespace} if row.namespace else {}
    return {"name": row.name, "kind": row.kind, **namespace, "older": row.older, "parameters": parameters}
