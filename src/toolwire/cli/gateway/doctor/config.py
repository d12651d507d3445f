"""`toolwire doctor config`: show what is configured, without any key, and everything that is wrong with it."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator

from toolwire import terminal
from toolwire.cli.config import load_or_report, print_problems
from toolwire.cli.trust import name_file
from toolwire.cli.usage import CONFIG_HELP
from toolwire.gateway.features.limits.settings import Limit, LimitSettings, describe_amounts
from toolwire.gateway.features.limits.unpriced import describe_unpriced, find_unpriced_models
from toolwire.gateway.features.mcp.command import describe_audience
from toolwire.gateway.features.mcp.settings import McpServer, McpSettings
from toolwire.gateway.settings import store
from toolwire.gateway.settings.address import bracket_ipv6
from toolwire.gateway.settings.config import Config, ModelRule
from toolwire.policy.rules import EFFECT_FIELDS, MATCH_FIELDS, Rule

Row = tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", help=CONFIG_HELP)


def run(args: argparse.Namespace) -> int:
    config = load_or_report(args.config, name_file)
    server = config.server
    workers = f"{server.workers} worker{'s' if server.workers > 1 else ''}"
    clients = "clients with a key" if server.needs_keys else "clients on this machine"
    general = [
        ("file", str(config.file or "none: only the environment is used")),
        ("server", f"http://{bracket_ipv6(server.host)}:{server.port}, {workers}, for {clients}"),
        ("store", store.describe_store(config.store, os.environ)),
    ]
    for title, rows in (
        ("", general),
        ("providers", list(provider_rows(config))),
        ("models", [model_row(rule) for rule in config.models]),
        ("limits", [limit_row(limit, config) for limit in config.section(LimitSettings).limits]),
        ("policy", [policy_row(rule) for rule in config.policy]),
        ("mcp", [mcp_row(server) for server in config.section(McpSettings).servers.values()]),
        ("client keys", list(key_rows(config))),
    ):
        if rows:
            sys.stdout.write(terminal.heading(title) if title else "")
            sys.stdout.write(terminal.format_table(rows))
    print_problems(config.warnings, str(config.file or ""))
    return 0


def limit_row(limit: Limit, config: Config) -> Row:
    unpriced = find_unpriced_models(config, limit, time.time())
    return f"  {limit.name}", describe_amounts(limit), describe_unpriced(limit, unpriced) if unpriced else ""


# --- the rows -------------------------------------------------------------------------------------------------------


def provider_rows(config: Config) -> Iterator[Row]:
    """One row for each address of a provider."""
    for provider in config.providers.values():
        if provider.embedded and provider.list_models:
            spoken = "every protocol" if len(provider.protocols) > 1 else provider.protocols[0]
            yield f"  {provider.name}", spoken, "(embedded)", provider.key_state
        for url in dict.fromkeys(provider.base_urls.values()):
            protocols = [protocol for protocol, other in provider.base_urls.items() if other == url]
            yield f"  {provider.name}", ", ".join(protocols), url.partition("?")[0], provider.key_state


def model_row(rule: ModelRule) -> Row:
    protocol = f" in {rule.protocol}" if rule.protocol else ""
    limit = f", at most {rule.max_output_tokens} tokens" if rule.max_output_tokens else ""
    target = f"{rule.provider}/{rule.model or '(as requested)'}{protocol}{limit}"
    return f"  {rule.name}", target, f"then {', '.join(rule.fallbacks)}" if rule.fallbacks else ""


def policy_row(rule: Rule) -> Row:
    """What a rule matches, and what it changes."""
    matches = (rule, *rule.within)  # a rule of a preset is limited by the [[policy]] that names it
    conditions = [
        f"{key} {', '.join(globs)}" for match in matches for key in MATCH_FIELDS if (globs := getattr(match, key))
    ]
    effects = [key for key in EFFECT_FIELDS if getattr(rule, key) not in (None, "", (), False, {})]
    return f"  {rule.name}", "; ".join(conditions) or "everything", ", ".join(effects)


def mcp_row(server: McpServer) -> Row:
    lacks = f"set {', '.join(server.missing_variables)}" if server.missing_variables else ""
    return f"  {server.name}", server.display_name, f"for {describe_audience(server)}", lacks


def key_rows(config: Config) -> Iterator[Row]:
    for key in config.server.keys:
        team = f"team {key.team}" if key.team else ""
        yield f"  {key.name}", ", ".join(key.models), team, "disabled" if key.disabled else key.expires
    if config.server.store_keys:
        yield "  and those of the store", "see `toolwire keys list`", "", ""
