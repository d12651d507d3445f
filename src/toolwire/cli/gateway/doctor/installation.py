"""Checks of what is installed: Python, the packages, the extras, and the coding agents."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from toolwire import __version__
from toolwire.agents import Agent, FoundProgram, find_program, load_agents, search_path
from toolwire.cli.gateway.doctor.finding import Finding, State
from toolwire.gateway.features.cloud_credentials.command import run_program
from toolwire.gateway.http.redact import printable_text, redact
from toolwire.gateway.telemetry.telemetry import is_tracing_requested
from toolwire.terminal.packages import describe_missing_package, is_installed
from toolwire.terminal.text import shorten_text

MAX_SHOWN = 120
_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)[^;]*(?:;.*extra == '(\w+)')?")
_VERSION = re.compile(r"\d+(?:\.\d+)+")
_SECRET_VARIABLE = re.compile(r"(?i)key|token|secret|passw|credential|auth")
"""Variables that a program does not need to print its version."""


async def check_installation(environ: Mapping[str, str]) -> Sequence[Finding]:
    """The versions, for bug reports, and an extra that the environment asks for. What the configuration asks for is
    checked where it is read."""
    system = f"{platform.system()} {platform.machine()}".strip()
    found = [Finding("ok", "toolwire", "", f"{__version__}, Python {platform.python_version()}, {system}")]
    by_extra = installed_packages()
    for extra, packages in by_extra.items():
        shown = ", ".join(f"{name} {number}" for name, number in packages.items() if number)
        missing = [name for name, number in packages.items() if not number]
        if shown:
            label = "packages" if not extra else "extra"
            found.append(Finding("ok", label, extra, shown + (f"; without {', '.join(missing)}" if missing else "")))
    absent = [extra for extra, packages in by_extra.items() if extra and not any(packages.values())]
    if absent:
        found.append(Finding("ok", "extra", "", f"not installed: {', '.join(absent)}"))
    if is_tracing_requested(environ) and not is_installed("opentelemetry"):
        found.append(Finding("warning", "extra", "otel", *describe_missing_package("tracing", "opentelemetry")))
    return found


def installed_packages() -> dict[str, dict[str, str]]:
    """The versions of the packages that Toolwire asks for, by extra; "" for a package that is not installed."""
    found: dict[str, dict[str, str]] = {"": {}}
    try:
        wanted = requires("toolwire") or ()
    except PackageNotFoundError:  # it runs from its sources
        wanted = ()
    for requirement in wanted:
        parts = _REQUIREMENT.match(requirement)
        if parts is None:
            continue
        name, extra = parts[1], parts[2] or ""
        try:
            number = version(name)
        except PackageNotFoundError:
            number = ""
        if number or extra:  # a package for another system or Python is not missing
            found.setdefault(extra, {})[name] = number
    return found


# --- agents -----------------------------------------------------------------------------------------------------------


def find_agents(environ: Mapping[str, str], folder: Path) -> dict[str, FoundProgram]:
    """The programs of the agents, by name. Nobody is asked about those that the folder brings: they are left out."""
    return {name: find_program(agent, environ, folder) for name, agent in load_agents().items()}


async def check_other_agents(programs: Mapping[str, FoundProgram]) -> Sequence[Finding]:
    """Those that are not used."""
    left_out = {name: one.left_out for name, one in programs.items() if one.left_out}
    hint = "`toolwire run NAME` asks whether you trust it"
    found = [
        Finding("ok", "agent", name, f"left out {program}, which you have not trusted", hint)
        for name, program in left_out.items()
    ]
    names = [name for name, one in programs.items() if not one.path and name not in left_out]
    hint = "" if any(one.path for one in programs.values()) else "`toolwire run --list` shows how to install one"
    return [*found, Finding("ok", "agents", "", f"not installed: {', '.join(names)}", hint)] if names else found


async def check_agent(agent: Agent, program: str, environ: Mapping[str, str]) -> Sequence[Finding]:
    """Its version, compared with the one that was tested."""
    kept = {name: value for name, value in environ.items() if not _SECRET_VARIABLE.search(name)}
    try:
        ended = await run_program([program, "--version"], {**kept, "PATH": search_path(program, environ)})
        code, output = ended.code, (ended.output if ended.output.strip() else ended.errors).decode(errors="replace")
    except OSError as error:
        code, output = error.errno or 1, error.strerror or ""
    found = _VERSION.search(output)
    if code or found is None:
        line = printable_text(redact(shorten_text(output.strip().partition("\n")[0], MAX_SHOWN)), MAX_SHOWN)
        what = f"`{program} --version` " + (f"failed with {code}" if code else "prints no version")
        needs = f" ({agent.needs})" if agent.needs else ""
        hint = f"install it again: {agent.install_command}{needs}"
        return [Finding("warning", "agent", agent.name, what + (f": {line}" if line else ""), hint)]
    return [judge_version(agent, found[0])]


def judge_version(agent: Agent, number: str) -> Finding:
    """Agents change how they are configured: an old one may not know the settings that `toolwire run` gives it."""
    state: State = "ok"
    what, hint = f"{agent.title} {number}", ""
    if _version_key(number) < _version_key(agent.version):
        state, hint = "warning", f"update it: {agent.install_command}"
        what += f" is older than {agent.version}, which is known to work"
    elif number != agent.version:
        what += f" is newer than {agent.version}, which is known to work"
    return Finding(state, "agent", agent.name, what, hint)


def _version_key(number: str) -> tuple[int, ...]:
    return tuple(map(int, number.split(".")))
