"""`toolwire doctor`: check everything that the gateway needs, and say what to do. The checks run at the same time."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from toolwire import __version__, terminal
from toolwire.agents import load_agents
from toolwire.cli.gateway.doctor.finding import Check, Finding, Limits, run_checks
from toolwire.cli.gateway.doctor.installation import (
    check_agent,
    check_installation,
    check_other_agents,
    find_agents,
)
from toolwire.cli.gateway.doctor.network import check_any_provider, check_port, check_provider
from toolwire.cli.gateway.doctor.services import check_counters, check_limits, check_mcp_servers, check_store
from toolwire.cli.trust import open_file
from toolwire.cli.usage import add_config_argument
from toolwire.gateway.configuration.load import config_file_places, read_opened_config
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.http.redact import SecretFilter
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.problems import ConfigError, Problem, report_problems
from toolwire.terminal import EXIT_FAILED, CommandError

DEFAULT_SECONDS = 30.0
MAX_SECONDS = 3600.0
COLOURS = {"ok": "ok", "warning": "changed", "problem": "lost"}
"""By the state of a finding."""
CLOSE_SECONDS = 15.0
"""For MCP programs to end: they are asked to, then terminated, then killed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add_config_argument(parser)
    keys = "also prove the keys: ask each provider for its models, or for a few tokens where there is no list"
    add("--try-keys", action="store_true", help=f"{keys}; and use MCP servers and PostgreSQL on other machines")
    add("--timeout", type=float, default=DEFAULT_SECONDS, metavar="SECONDS", help="limit of each check (default: 30)")
    add("--json", action="store_true", help="print one JSON document")
    parser.epilog = (
        "Without --try-keys, other machines are only connected to (TCP and TLS):\n"
        "no key or password is sent to them. MCP programs are started, and installed\n"
        "agents are asked for their version. The exit code is 1 if there is a problem;\n"
        "warnings are not problems."
    )


def run(args: argparse.Namespace) -> int:
    if not 0 < args.timeout <= MAX_SECONDS or math.isnan(args.timeout):
        raise CommandError(f"--timeout: {args.timeout:g} is not possible", f"use a number up to {MAX_SECONDS:g}")
    limits = Limits(args.timeout, args.try_keys)
    config, findings = check_config(args.config)
    hide = SecretFilter(config.secrets if config is not None else ())
    findings += asyncio.run(run_checks(list_checks(config, limits), limits.seconds))
    findings = [
        msgspec.structs.replace(finding, message=hide.clean(finding.message), hint=hide.clean(finding.hint))
        for finding in findings
    ]
    if args.json:
        sys.stdout.write(terminal.format_json(report_document(findings)))
    else:
        print_report(findings, config, limits)
    return EXIT_FAILED if any(finding.state == "problem" for finding in findings) else 0


def check_config(file: str | None) -> tuple[Config | None, list[Finding]]:
    """The configuration, and all its problems."""
    try:
        config = read_opened_config(open_file(file), os.environ)
    except ConfigError as error:
        return None, problem_findings(error.problems, error.file)
    places = ", ".join(str(place) for place in config_file_places(os.environ))
    where = str(config.file.absolute()) if config.file else f"no file; looked for {places}"
    return config, [Finding("ok", "config", "", where), *problem_findings(config.warnings, str(config.file or ""))]


def problem_findings(problems: Sequence[Problem], file: str) -> list[Finding]:
    return [
        Finding("problem" if line.severity == "error" else "warning", "config", "", str(line), line.hint)
        for line in report_problems(problems, file)
    ]


def list_checks(config: Config | None, limits: Limits) -> Iterator[Check]:
    """All checks, in the order of the report. Without a configuration, those that need none."""
    environ = os.environ
    if config is not None:
        yield Check("providers", "", check_any_provider(config))
        for provider in config.providers.values():
            if not provider.embedded:
                yield Check("provider", provider.name, check_provider(provider, config, limits))
        yield Check("store", "", check_store(config, environ, limits))
        yield Check("counters", "", check_counters(config, environ, limits))
        yield Check("limits", "", check_limits(config))
        if config.section(McpSettings).servers:
            yield Check("mcp", "", check_mcp_servers(config, limits), CLOSE_SECONDS)
        yield Check("port", "", check_port(config))
    programs = find_agents(environ, Path.cwd())
    for name, program in programs.items():
        if program.path:
            yield Check("agent", name, check_agent(load_agents()[name], program.path, environ))
    yield Check("agents", "", check_other_agents(programs))
    yield Check("toolwire", "", check_installation(environ))


# --- the report -------------------------------------------------------------------------------------------------------


def print_report(findings: Sequence[Finding], config: Config | None, limits: Limits) -> None:
    """One row for each finding, and below it what to do."""
    rows: list[tuple[str, str, str]] = []
    colours: list[str] = []
    for finding in findings:
        rows.append((finding.state, finding.subject, finding.message))
        colours.append(COLOURS[finding.state])
        if finding.hint:
            rows.append(("", "", f"→ {finding.hint}"))
            colours.append("")
    sys.stdout.write(terminal.format_table(rows, colours))
    sys.stdout.write(f"\n{summarise(findings)}\n")
    if config is None:
        sys.stdout.write("Correct the configuration first: providers, store and port were not checked.\n")
    elif not limits.tries_keys and any(one.api_key or one.access.method for one in config.providers.values()):
        sys.stdout.write("No key was sent: `toolwire doctor --try-keys` proves them.\n")


def summarise(findings: Sequence[Finding]) -> str:
    counts = {state: sum(finding.state == state for finding in findings) for state in ("problem", "warning")}
    return ", ".join(f"{count or 'no'} {state}{'' if count == 1 else 's'}" for state, count in counts.items())


def report_document(findings: Sequence[Finding]) -> dict[str, object]:
    return {
        "version": __version__,
        "problems": sum(finding.state == "problem" for finding in findings),
        "warnings": sum(finding.state == "warning" for finding in findings),
        "findings": findings,
    }
