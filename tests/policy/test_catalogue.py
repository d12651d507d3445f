"""The catalogue of tools is consistent, complete, and has the names that the agents use."""

from __future__ import annotations

import json
from typing import Any

import pytest

from material import CORPUS, needs_corpus
from toolwire.gateway.settings.policies import AgentTool, CatalogueTool, load_catalogue
from toolwire.gateway.telemetry.agents import load_agents

TOOLS = load_catalogue().tools
ROWS = [(name, row) for name, entry in TOOLS.items() for row in entry.known]
SOURCES = {"opencode": "opencode", "gemini": "gemini-cli"}
"""Agents whose own schemas the corpus has, and how it names where they are from."""


@pytest.mark.parametrize(
    "name",
    [
        *"shell read_file read_many_files write_file replace search_file_content web_search web_fetch view_image".split(),
        *"cat ls grep edit_file search_files apply_patch update_plan".split(),
    ],
)
def test_what_the_seeds_name_is_there(name: str) -> None:
    assert [*load_catalogue().find_tools(name)]


def test_the_search_of_one_agent_has_a_query_and_nothing_else() -> None:
    [(name, entry)] = load_catalogue().find_tools("google_web_search")
    [row] = [row for row in entry.known if row.name == "google_web_search"]
    assert name == "web_search"
    assert [(one.name, one.type, one.required) for one in row.parameters] == [("query", "string", True)]


@pytest.mark.parametrize("name", TOOLS)
def test_every_meaning_is_said_and_used(name: str) -> None:
    entry = TOOLS[name]
    used = {one.meaning for row in entry.known for one in row.parameters if one.meaning}
    assert used == set(entry.means)
    for row in entry.known:
        for one in row.parameters:
            assert one.meaning or one.means, f"{row.name}.{one.name} means nothing"
    said = [entry.about, *(entry.parameter_meaning(one) for row in entry.known for one in row.parameters)]
    assert all(text.endswith(".") and text[0].isupper() for text in said)


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.agent}-{row.name}") for _, row in ROWS])
def test_rows_are_whole(row: AgentTool) -> None:
    assert row.agent in load_catalogue().agents
    names = [one.name for one in row.parameters]
    assert len(names) == len(set(names))
    today = [one.meaning for one in row.parameters if one.meaning and not one.older]
    assert len(today) == len(set(today)), "two parameters of one meaning, and neither is older"
    types = {"string", "number", "integer", "boolean", "object", "array"}
    assert all(one.type in types and bool(one.of) == (one.type == "array") for one in row.parameters)


def test_agents_are_called_as_rules_call_them() -> None:
    assert set(load_catalogue().agents) <= set(load_agents())


def test_an_agent_has_no_name_twice() -> None:
    names = [(row.agent, row.name) for _, row in ROWS]
    assert len(names) == len(set(names))


def test_todays_name_comes_first() -> None:
    entry: CatalogueTool = TOOLS["shell"]
    assert [row.name for row in entry.tools_of("codex")] == ["exec_command", "shell", "shell_command"]
    assert [row.name for row in entry.tools_of("nobody")] == []


# --- against the agents ---------------------------------------------------------------------------------------------


def _load_declared_tools() -> list[tuple[str, str, dict[str, Any]]]:
    """Tools that an agent declares and that the catalogue knows: agent, name, schema."""
    known = {(row.agent, row.name) for _, row in ROWS}
    if not CORPUS.exists():
        return []
    found = json.loads((CORPUS / "schemas" / "agents.json").read_text())
    named = {
        (agent, tool["name"]): tool["schema"]
        for tool in found
        for agent, project in SOURCES.items()
        if f"/{project}@" in tool["source"] and (agent, tool["name"]) in known
    }
    return [(agent, name, schema) for (agent, name), schema in named.items()]


@needs_corpus
def test_the_corpus_has_agents_to_compare_with() -> None:
    names = {(agent, name) for agent, name, _ in _load_declared_tools()}
    assert {("opencode", "bash"), ("gemini", "read_file"), ("gemini", "google_web_search")} <= names
    assert len(names) >= 14


@needs_corpus
@pytest.mark.parametrize(
    ("agent", "name", "schema"), _load_declared_tools(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_names_and_parameters_are_those_that_the_agent_declares(agent: str, name: str, schema: dict[str, Any]) -> None:
    [row] = [row for _, row in ROWS if (row.agent, row.name) == (agent, name)]
    mine = {one.name: one for one in row.parameters if not one.older}
    assert set(mine) == set(schema["properties"])
    for key, declared in schema["properties"].items():
        assert mine[key].type == declared["type"]
        assert mine[key].of == (declared["items"]["type"] if mine[key].type == "array" else "")
    assert {key for key, one in mine.items() if one.required} == set(schema.get("required", ()))
