"""Continue's command line: Chat, Responses and Messages; it stands here once for each.

As `toolwire run` configures it, it asks no model to think.
"""

from __future__ import annotations

from pathlib import Path

from agents.agent import ADAPTERS, OTHER_PROVIDER, UNSCRIPTED_SCENES, Agent
from gateway.declared_tools import Use

SWITCHES = ("--print", "--auto")
QUICK_TARGETS = {**OTHER_PROVIDER, "anthropic": ("openai-chat", "openai-responses")}
"""With three protocols it meets all four providers."""


def headless(prompt: str) -> list[str]:
    return [*SWITCHES, prompt]


def again(prompt: str) -> list[str]:
    return [*SWITCHES, "--resume", prompt]


def shell(command: str) -> Use:
    return Use("Bash", {"command": command})


def read(path: Path) -> Use:
    return Use("Read", {"filepath": str(path)})


def write(path: Path, text: str) -> Use:
    return Use("Write", {"filepath": str(path), "content": text})


AGENTS = {
    f"continue-{name}": Agent(
        name="continue",
        protocol=protocol,
        model=model,
        headless=headless,
        again=again,
        shell=shell,
        read=read,
        write=write,
        options=("--protocol", protocol),
        loses_seals=protocol in ("openai-responses", "anthropic"),
        scenes=UNSCRIPTED_SCENES,
        quick_targets=QUICK_TARGETS[protocol],
    )
    for name, (protocol, model) in ADAPTERS.items()
    if protocol != "gemini"
}
