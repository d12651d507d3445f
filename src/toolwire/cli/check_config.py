"""`toolwire check-config`: what is configured, without any key, and everything that is wrong with it."""

from __future__ import annotations

import argparse
import getpass
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence

from toolwire.cli import EXIT_BAD_INPUT, CommandError, terminal
from toolwire.gateway.config import store
from toolwire.gateway.config.config import Config, McpServer, ModelRule, Provider
from toolwire.gateway.config.load import load_config
from toolwire.gateway.config.problems import ConfigError, Problem, format_problem
from toolwire.policy.rules import EFFECT_FIELDS, MATCH_FIELDS, Rule

MIN_KEY_LENGTH = 20
"""Characters below which a key can be found from its hash by trying."""
Row = tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--hash-key", action="store_true", help="read a client's key and print its [[server.keys]]")


def run(args: argparse.Namespace) -> int:
    if args.hash_key:
        return print_key_hash()
    try:
        config = load_config(args.config, os.environ)
    except ConfigError as problems:
        print_problems(problems.problems, problems.file)
        return EXIT_BAD_INPUT
    general = [
        ("file", str(config.file or "none: the environment alone")),
        ("server", describe_server(config)),
        ("store", store.describe_store(config.store, os.environ)),
    ]
    for title, rows in (
        ("", general),
        ("providers", list(provider_rows(config))),
        ("models", [model_row(rule) for rule in config.models]),
        ("policy", [policy_row(rule) for rule in config.policy]),
        ("mcp", [mcp_row(server) for server in config.mcp.values()]),
        ("client keys", [(f"  {key.name}", ", ".join(key.models)) for key in config.server.keys]),
    ):
        if rows:
            sys.stdout.write(terminal.paint_text(f"{title}\n", "head", sys.stdout) if title else "")
            sys.stdout.write(terminal.format_table(rows))
    print_problems(config.warnings, str(config.file or ""))
    return 0


def print_problems(found: Sequence[Problem], file: str) -> None:
    """Problems and warnings, each with its line and its hint."""
    for problem in found:
        colour = "lost" if problem.severity == "error" else "changed"
        line = f"{format_problem(problem, file)}\n"
        sys.stderr.write(f"{terminal.paint_text(f'{problem.severity}:', colour, sys.stderr)} {line}")
        if problem.hint:
            sys.stderr.write(f"hint: {problem.hint}\n")


# --- what there is ------------------------------------------------------------------------------------------------


def describe_server(config: Config) -> str:
    server = config.server
    workers = f"{server.workers} worker{'s' if server.workers > 1 else ''}"
    host = f"[{server.host}]" if ":" in server.host else server.host
    whom = "clients with a key" if server.keys else "clients on this machine"
    return f"http://{host}:{server.port}, {workers}, for {whom}"


def provider_rows(config: Config) -> Iterator[Row]:
    """A row for every address of a provider."""
    for provider in config.providers.values():
        if provider.embedded:
            yield f"  {provider.name}", "every protocol", "(embedded)", "needs none"
        for url in dict.fromkeys(provider.base_urls.values()):
            spoken = [protocol for protocol, where in provider.base_urls.items() if where == url]
            yield f"  {provider.name}", ", ".join(spoken), url.partition("?")[0], describe_key(provider)


def describe_key(provider: Provider) -> str:
    """Where a provider's key is from; never the key."""
    if provider.forward_auth:
        return "client's own"
    if provider.is_key_missing:
        return f"missing: {provider.api_key_env}"
    if provider.api_key:
        return f"from {provider.api_key_env}" if provider.api_key_env else "from the file"
    return "none"


def model_row(rule: ModelRule) -> Row:
    pinned = f" in {rule.protocol}" if rule.protocol else ""
    limit = f", at most {rule.max_output_tokens} tokens" if rule.max_output_tokens else ""
    target = f"{rule.provider}/{rule.model or '(as asked)'}{pinned}{limit}"
    return f"  {rule.name}", target, f"then {', '.join(rule.fallbacks)}" if rule.fallbacks else ""


def policy_row(rule: Rule) -> Row:
    """What a rule speaks of, and what it does; `toolwire policy explain` shows it at work."""
    met = [f"{key} {', '.join(globs)}" for key in MATCH_FIELDS if (globs := getattr(rule, key))]
    done = [
        key for key in EFFECT_FIELDS if getattr(rule, key) not in (None, "", (), False) and getattr(rule, key) != {}
    ]
    return f"  {rule.name}", "; ".join(met) or "everything", ", ".join(done)


def mcp_row(server: McpServer) -> Row:
    missing = f"missing: {', '.join(server.missing_variables)}" if server.missing_variables else ""
    return f"  {server.name}", server.display_name, f"for {describe_audience(server)}", missing


def describe_audience(server: McpServer) -> str:
    """Who is given its tools."""
    if not server.models and not server.clients:
        return "nobody"
    models = ", ".join(server.models) or "all models"
    return f"{models} of {', '.join(server.clients)}" if server.clients else models


# --- keys of clients ----------------------------------------------------------------------------------------------


def print_key_hash() -> int:
    """The lines that let a client in, from its key."""
    given = getpass.getpass("key: ") if sys.stdin.isatty() else terminal.read_input(None).decode("utf-8", "replace")
    key = given.strip()
    if not key:
        raise CommandError("no key was given", 'pipe it in: `printf %s "$KEY" | toolwire check-config --hash-key`')
    if len(key) < MIN_KEY_LENGTH:
        sys.stderr.write(f"warning: a key of fewer than {MIN_KEY_LENGTH} characters can be guessed from its hash\n")
    digest = hashlib.sha256(key.encode()).hexdigest()
    sys.stdout.write(f'[[server.keys]]\nname = "NAME"\nsha256 = "{digest}"\nmodels = ["*"]\n')
    return 0
