"""opencode: any of the four protocols, by the adapter that its configuration names; it stands here once for each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from agents.agent import ADAPTERS, PROBE, Agent
from gateway.declared_tools import Use, find_declared_tool
from gateway.provider import Received, ScriptedAnswer

QUICK = {
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_FFF": "1",
    "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
}
"""Without what only makes it slow to start: sign-ins of other vendors, an index and a watch of all files."""
PLUGINS = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}


def headless(prompt: str) -> list[str]:
    return ["run", "--auto", "--format", "json", prompt]


def again(prompt: str) -> list[str]:
    return ["run", "--continue", "--auto", "--format", "json", prompt]


def shell(command: str) -> Use:
    return Use("bash", {"command": command, "description": "Runs a command"})


def read(path: Path) -> Use:
    return Use("read", {"filePath": str(path)})


def write(path: Path, text: str) -> Use:
    return Use("write", {"filePath": str(path), "content": text})


def patch(path: Path, text: str) -> Use:
    """In place of `write`, for models whose names it takes for OpenAI's newer ones."""
    lines = "".join(f"+{line}\n" for line in text.split("\n")[:-1])
    return Use("apply_patch", {"patchText": f"*** Begin Patch\n*** Add File: {path.name}\n{lines}*** End Patch\n"})


def echo(word: str) -> Sequence[Use]:
    return (Use("probe_echo", {"word": word}),)


def with_probe(workspace: Path) -> list[str]:
    server = {"type": "local", "command": list(PROBE)}
    (workspace / "opencode.json").write_text(json.dumps({"mcp": {"probe": server}}))
    return []


def furnish(home: Path) -> None:
    """It installs a package for plugins into every new home; here it finds that it has done so."""
    settings = home / ".local/state/toolwire/agents/opencode/.config/opencode"
    (settings / "node_modules").mkdir(parents=True, exist_ok=True)
    (settings / "package-lock.json").write_text(json.dumps(PLUGINS))


def aside(asked: Received) -> ScriptedAnswer | None:
    """It wants a title for the session while it works; that request alone has no tools."""
    return None if find_declared_tool(asked.body) else ScriptedAnswer("A title")


AGENTS = {
    f"opencode-{name}": Agent(
        name="opencode",
        protocol=protocol,
        model=model,
        headless=headless,
        again=again,
        shell=shell,
        read=read,
        write=patch if name == "responses" else write,
        look=read,
        echo=echo,
        with_probe=with_probe,
        options=("--protocol", protocol),
        aside=aside,
        environ=QUICK,
        tells_codes=False,
        furnish=furnish,
    )
    for name, (protocol, model) in ADAPTERS.items()
}
