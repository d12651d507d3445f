"""`toolwire check-config`: what is configured, without any key, and everything that is wrong with it."""

from __future__ import annotations

import argparse
import getpass
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence

from toolwire.cli import BAD_INPUT, Complaint, files, screen
from toolwire.gateway.settings import places
from toolwire.gateway.settings.config import Config, McpServer, ModelRule, Provider
from toolwire.gateway.settings.configfile import load
from toolwire.gateway.settings.problems import Problem, Problems, said
from toolwire.policy.rules import EFFECTS, MATCHES, Rule

SHORT = 20
"""Characters below which a key can be found from its hash by trying."""
Row = tuple[str, ...]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--hash-key", action="store_true", help="read a client's key and print its [[server.keys]]")


def run(chosen: argparse.Namespace) -> int:
    if chosen.hash_key:
        return hashed()
    try:
        config = load(chosen.config, os.environ)
    except Problems as problems:
        complain(problems.found, problems.file)
        return BAD_INPUT
    general = [
        ("file", str(config.file or "none: the environment alone")),
        ("server", served(config)),
        ("store", places.shown(config.store, os.environ)),
    ]
    for title, rows in (
        ("", general),
        ("providers", list(providers(config))),
        ("models", [ruled(rule) for rule in config.models]),
        ("policy", [policed(rule) for rule in config.policy]),
        ("mcp", [served_tools(server) for server in config.mcp.values()]),
        ("client keys", [(f"  {key.name}", ", ".join(key.models)) for key in config.server.keys]),
    ):
        if rows:
            sys.stdout.write(screen.paint(f"{title}\n", "head", sys.stdout) if title else "")
            sys.stdout.write(screen.table(rows))
    complain(config.warnings, str(config.file or ""))
    return 0


def complain(found: Sequence[Problem], file: str) -> None:
    """Problems and warnings, each with its line and its hint."""
    for problem in found:
        colour = "lost" if problem.severity == "error" else "changed"
        line = f"{said(problem, file)}\n"
        sys.stderr.write(f"{screen.paint(f'{problem.severity}:', colour, sys.stderr)} {line}")
        if problem.hint:
            sys.stderr.write(f"hint: {problem.hint}\n")


# --- what there is ------------------------------------------------------------------------------------------------


def served(config: Config) -> str:
    server = config.server
    workers = f"{server.workers} worker{'s' if server.workers > 1 else ''}"
    host = f"[{server.host}]" if ":" in server.host else server.host
    whom = "clients with a key" if server.keys else "clients on this machine"
    return f"http://{host}:{server.port}, {workers}, for {whom}"


def providers(config: Config) -> Iterator[Row]:
    """A row for every address of a provider."""
    for provider in config.providers.values():
        if provider.embedded:
            yield f"  {provider.name}", "every protocol", "(embedded)", "needs none"
        for url in dict.fromkeys(provider.base_urls.values()):
            spoken = [protocol for protocol, where in provider.base_urls.items() if where == url]
            yield f"  {provider.name}", ", ".join(spoken), url.partition("?")[0], key_of(provider)


def key_of(provider: Provider) -> str:
    """Where a provider's key is from; never the key."""
    if provider.forward_auth:
        return "client's own"
    if provider.key_missing:
        return f"missing: {provider.api_key_env}"
    if provider.api_key:
        return f"from {provider.api_key_env}" if provider.api_key_env else "from the file"
    return "none"


def ruled(rule: ModelRule) -> Row:
    pinned = f" in {rule.protocol}" if rule.protocol else ""
    limit = f", at most {rule.max_output_tokens} tokens" if rule.max_output_tokens else ""
    target = f"{rule.provider}/{rule.model or '(as asked)'}{pinned}{limit}"
    return f"  {rule.name}", target, f"then {', '.join(rule.fallbacks)}" if rule.fallbacks else ""


def policed(rule: Rule) -> Row:
    """What a rule speaks of, and what it does; `toolwire policy explain` shows it at work."""
    met = [f"{key} {', '.join(globs)}" for key in MATCHES if (globs := getattr(rule, key))]
    done = [key for key in EFFECTS if getattr(rule, key) not in (None, "", (), False) and getattr(rule, key) != {}]
    return f"  {rule.name}", "; ".join(met) or "everything", ", ".join(done)


def served_tools(server: McpServer) -> Row:
    missing = f"missing: {', '.join(server.missing)}" if server.missing else ""
    return f"  {server.name}", server.shown, f"for {whom(server)}", missing


def whom(server: McpServer) -> str:
    """Who is given its tools."""
    if not server.models and not server.clients:
        return "nobody"
    models = ", ".join(server.models) or "all models"
    return f"{models} of {', '.join(server.clients)}" if server.clients else models


# --- keys of clients ----------------------------------------------------------------------------------------------


def hashed() -> int:
    """The lines that let a client in, from its key."""
    given = getpass.getpass("key: ") if sys.stdin.isatty() else files.read(None).decode("utf-8", "replace")
    key = given.strip()
    if not key:
        raise Complaint("no key was given", 'pipe it in: `printf %s "$KEY" | toolwire check-config --hash-key`')
    if len(key) < SHORT:
        sys.stderr.write(f"warning: a key of fewer than {SHORT} characters can be guessed from its hash\n")
    digest = hashlib.sha256(key.encode()).hexdigest()
    sys.stdout.write(f'[[server.keys]]\nname = "NAME"\nsha256 = "{digest}"\nmodels = ["*"]\n')
    return 0
