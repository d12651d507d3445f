"""Names of tools: which repair is safe, and what is never guessed."""

from __future__ import annotations

import pytest

from toolwire.call_repair.offered_tools import OfferedTools
from toolwire.core.ir import Tool

OFFERED = (
    "bash",
    "read_file",
    "web_search",
    "Edit",
    "mcp__files__list",
    "mcp__git__status",
    "mcp__hub__status",
    "mcp_x",
)

FOUND = {
    "bash": "bash",
    "functions.bash": "bash",
    "functions.bash:0": "bash",
    "function.bash": "bash",
    "tools/bash": "bash",
    "tools.read_file": "read_file",
    "default_api.web_search": "web_search",
    "default_api:web_search": "web_search",
    "repo_browser.read_file": "read_file",
    "google:tool:bash:index:0": "bash",
    "mcp_mcp_x": "mcp_x",
    "bash:0": "bash",
    "bash.3": "bash",
    "bash_tool": "bash",
    "BashTool": "bash",
    "read_file5f3789": "read_file",
    "bash<|channel|>commentary": "bash",
    "functions.bash<|channel|>json": "bash",
    "bash<arg_key>command": "bash",
    "web_searchweb_search": "web_search",
    "bashbashbash": "bash",
    "Bash": "bash",
    "ReadFile": "read_file",
    "read-file": "read_file",
    "read file": "read_file",
    "read.file": "read_file",
    "readFile": "read_file",
    "READ_FILE": "read_file",
    " bash\n": "bash",
    "bash()": "bash",
    "edit": "Edit",
    "read_file.read_file": "read_file",
    "list": "mcp__files__list",
    "functions.list": "mcp__files__list",
    "mcp__Files__List": "mcp__files__list",
}

UNKNOWN = [
    "", " ", "_", "functions.", "terminal", "shell", "shell_command", "run_command", "bas", "bashh", "read", "file", "search", "status",
    "files", "hub", "other.bash", "github__bash", "bash_2", "deadbeef", "web_search_preview", "x" * 1000, "<|channel|>bash",
]  # fmt: skip


def offer(*names: str) -> OfferedTools:
    return OfferedTools([Tool(name) for name in names])


@pytest.mark.parametrize("name", FOUND)
def test_one_tool_is_meant(name: str) -> None:
    assert offer(*OFFERED).find_tool(name) == FOUND[name]


@pytest.mark.parametrize("name", UNKNOWN)
def test_nothing_is_guessed(name: str) -> None:
    assert offer(*OFFERED).find_tool(name) is None


def test_ties_are_no_match() -> None:
    assert offer("read_file", "readFile").find_tool("Read-File") is None
    assert offer("read_file", "readFile").find_tool("readFile") == "readFile"
    assert offer("a__read", "b__read").find_tool("read") is None
    assert offer("a__read", "b__read", "read").find_tool("read") == "read"


def test_an_offered_name_is_never_shortened() -> None:
    assert offer("functions.bash", "bash").find_tool("functions.bash") == "functions.bash"
    assert offer("bash_tool", "bash").find_tool("bash_tool") == "bash_tool"
    assert offer("bash_tool", "bash").find_tool("Bash_Tool") == "bash_tool"
    assert offer("read5f3789", "read").find_tool("read5f3789") == "read5f3789"
