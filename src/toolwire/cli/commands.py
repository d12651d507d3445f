"""The table of commands, from which their help and their completion are made."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import NamedTuple


class Command(NamedTuple):
    """One row of the table of commands."""

    module: str
    """In `toolwire`. A command of one feature of the gateway lies in that feature's folder."""
    summary: str
    reads: str = ""
    """The configuration that the command gets, one of `toolwire.cli.config.LOADERS`; others need none, or decide
    themselves when to load it."""

    @property
    def package(self) -> str:
        """The package of its group in the help; "" for commands about the command line itself."""
        return next((name for name in ("gateway", "translation") if name in self.module.split(".")), "")


COMMANDS = {
    "serve": Command("cli.gateway.serve", "Run the gateway"),
    "run": Command(
        "cli.gateway.run",
        "Run a coding agent, such as Codex or Claude Code, on any model; starts a gateway if none is running",
    ),
    "demo": Command(
        "cli.gateway.demo", "Show one conversation in every pair of protocols, or one tool call in each; needs no key"
    ),
    "demo matrix": Command(
        "cli.translation.matrix", "Show the same tool declaration, call and result in every protocol, side by side"
    ),
    "translate": Command(
        "cli.translation.translate",
        "Translate a request, a response, a stream or an error from one protocol to another",
    ),
    "check": Command("cli.translation.check", "Show what each provider would do with the tools in a file"),
    "tools": Command("cli.translation.tools", "List the tools of known coding agents, and what each agent calls them"),
    "doctor": Command("cli.gateway.doctor", "Check configuration, providers, store, MCP servers, port and agents"),
    "doctor config": Command(
        "cli.gateway.doctor.config", "Check the gateway's configuration alone, and show what it means"
    ),
    "import": Command("cli.gateway.import_config", "Convert the configuration of LiteLLM or claude-code-router"),
    "keys": Command("cli.gateway.keys", "Make, list, limit, disable and replace the keys of the gateway's clients"),
    "models": Command(
        "cli.gateway.models", "List the models of the configured providers, or say what is known about one", "config"
    ),
    "costs": Command(
        "gateway.features.costs.command",
        "Show what was spent, by model, key, team and more, and what is used of the limits",
        "config",
    ),
    "costs limits": Command(
        "gateway.features.limits.command", "Show what is used of the configured limits", "config and stored limits"
    ),
    "policy": Command("cli.gateway.policy", "Show what the policy rules do to a request, and which rule does it"),
    "store": Command("cli.gateway.store", "Count, clean up or export what the gateway stores", "config"),
    "mcp": Command(
        "gateway.features.mcp.command", "Connect to the configured MCP servers, and list their tools", "config"
    ),
    "conformance": Command(
        "cli.translation.conformance", "Test how a gateway handles tool calls, with cases taken from bug reports"
    ),
    "completion": Command("cli.completion", "Print the script that completes commands in bash, zsh or fish"),
    "help": Command("cli.help", "List the commands, or explain one"),
    "version": Command("cli.version", "Print the version"),
}
"""A name of two words is a subcommand: the help of its command shows it."""

COLOUR_CHOICES = ("auto", "always", "never")


def subcommands(command: str) -> list[str]:
    return [name.partition(" ")[2] for name in COMMANDS if name.startswith(f"{command} ")]


def load_command_module(command: str) -> ModuleType:
    return import_module(f"toolwire.{COMMANDS[command].module}")
