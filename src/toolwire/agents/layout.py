"""What points an agent at the gateway: its environment, files, links and command line, planned as data and written.

Each agent has a home of its own that Toolwire keeps between runs: its sessions, permissions and MCP servers. Files for
one run are in a temporary folder. The user's own files are never written.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.agents import AddedSettings, Agent, MirroredFolder
from toolwire.core.codec import ModelFacts
from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.settings.store import state_folder

PLACEHOLDER = re.compile(r"\{(\w+)(:quoted|:number)?\}")
HOME_PLACEHOLDER = "{home}"
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL_HOSTS = "127.0.0.1,localhost,::1"
PRIVATE_MODE = 0o700
RUN_FOLDER_VARIABLE = "$TOOLWIRE_RUN"
"""Stands for the temporary folder of a run in a printed plan."""


class Layout(Struct, frozen=True, kw_only=True):
    """Everything that an agent is started with."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    unset: tuple[str, ...]
    files: Mapping[str, dict[str, Any]]
    """JSON, by path."""
    links: Mapping[str, str]
    """Their targets, by path."""
    home: str

    def apply_to_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in environ.items() if name not in self.unset}
        return {**kept, **self.environment}


def agent_home(agent: Agent, environ: Mapping[str, str]) -> str:
    """The agent's permanent home, in the same folder as the gateway's store."""
    return str(state_folder(environ) / "agents" / agent.name)


def has_own_home(agent: Agent) -> bool:
    """Does Toolwire give it a home? Otherwise it always reads the user's settings."""
    texts = [*agent.files, *(value for value in agent.environment.values() if isinstance(value, str))]
    return bool(agent.mirrors) or any(HOME_PLACEHOLDER in text for text in texts)


def use_own_settings(agent: Agent) -> Agent:
    """The same agent without a home of its own: it reads and writes the user's files, and Toolwire writes none."""
    homeless = replace(
        agent,
        environment={name: value for name, value in agent.environment.items() if HOME_PLACEHOLDER not in value},
        files={path: body for path, body in agent.files.items() if HOME_PLACEHOLDER not in path},
        own_variables=(),
        mirrors=EMPTY_MAPPING,
    )
    return _add_settings(homeless, agent.own_settings)


LIMIT_NAMES = frozenset({"context_window", "max_output_tokens", "max_prompt_tokens", "compression_threshold"})
GEMINI_WINDOW, GEMINI_THRESHOLD = 1_048_576, 0.5
"""Gemini CLI takes this for the window of every model, and shortens its history when so much of it is used."""


def limit_texts(facts: ModelFacts) -> dict[str, str]:
    """The limits of a model that are known. What an answer can take is kept free for it."""
    window, output = facts.context_window, facts.max_output_tokens
    prompt = window - output if window and output and output < window else window
    threshold = round(GEMINI_THRESHOLD * min(1, window / GEMINI_WINDOW), 5) if window else None
    limits = {
        "context_window": window,
        "max_output_tokens": output,
        "max_prompt_tokens": prompt,
        "compression_threshold": threshold or None,
    }
    return {name: str(value) for name, value in limits.items() if value is not None}


def add_limits(agent: Agent, limits: Mapping[str, str]) -> Agent:
    """The agent with the settings for those limits of its model that are known."""
    for settings in agent.limits:
        if _needed_limits(settings) <= limits.keys():
            agent = _add_settings(agent, settings)
    return agent


def _add_settings(agent: Agent, settings: AddedSettings) -> Agent:
    return replace(
        agent,
        arguments=(*agent.arguments, *settings.arguments),
        environment=_join_values(agent.environment, settings.environment),
        files=_join_values(agent.files, settings.files),
    )


def _join_values(old: Any, new: Any) -> Any:
    """Tables and the items of lists are joined."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{key: _join_values(old.get(key), value) for key, value in new.items()}}
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [_join_values(before, after) for before, after in zip(old, new, strict=True)]
    return new


def _needed_limits(settings: AddedSettings) -> set[str]:
    texts = json.dumps([settings.arguments, dict(settings.environment), dict(settings.files)])
    names = {found[1] for found in PLACEHOLDER.finditer(texts)}
    return names & LIMIT_NAMES


def plan_layout(
    agent: Agent, environ: Mapping[str, str], protocol: str, arguments: Sequence[str], texts: Mapping[str, str]
) -> Layout:
    """How to start this agent with the user's arguments. `texts` has the gateway's `origin`, the `key`, the `model` and
    `run`, the temporary folder, and the limits of the model that are known."""
    agent = add_limits(agent, texts)
    settings, run = agent.protocols[protocol], texts["run"]
    home = agent_home(agent, environ)
    texts = {**settings, **texts, "home": home, "base": texts["origin"] + settings.get("path", "")}
    links = {
        path: target
        for variable, mirror in agent.mirrors.items()
        for path, target in _mirror_links(variable, mirror, environ, home, run)
    }
    environment = {variable: f"{run}/{mirror.default}" for variable, mirror in agent.mirrors.items()}
    for name, value in agent.environment.items():
        filled = _fill_placeholders(value, texts)
        environment[name] = filled if isinstance(filled, str) else json.dumps(filled, ensure_ascii=False)
    is_subcommand = bool(arguments) and arguments[0] in agent.subcommands
    added = () if is_subcommand else (_fill_placeholders(text, texts) for text in agent.arguments)
    return Layout(
        command=(agent.command, *added, *arguments),
        environment={**environment, **_no_proxy_variables(environ)},
        unset=(*agent.unset, *agent.own_variables),
        files={_fill_placeholders(path, texts): _fill_placeholders(body, texts) for path, body in agent.files.items()},
        links=links,
        home=home,
    )


def _fill_placeholders(value: Any, texts: Mapping[str, str]) -> Any:
    """Replace the placeholders in all texts of a value; braces with an unknown name stay."""
    if isinstance(value, dict):
        return {_fill_placeholders(key, texts): _fill_placeholders(item, texts) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill_placeholders(item, texts) for item in value]
    if not isinstance(value, str):
        return value
    if (number := PLACEHOLDER.fullmatch(value)) and number[2] == ":number":
        return json.loads(texts[number[1]])

    def replacement(found: re.Match[str]) -> str:
        if found[1] not in texts:
            return found[0]
        return json.dumps(texts[found[1]], ensure_ascii=False) if found[2] == ":quoted" else texts[found[1]]

    return PLACEHOLDER.sub(replacement, value)


def _mirror_links(
    variable: str, mirror: MirroredFolder, environ: Mapping[str, str], home: str, run: str
) -> Iterator[tuple[str, str]]:
    users = Path(environ.get(variable) or Path(environ.get("HOME") or "/", mirror.default))
    for entry in sorted(users.iterdir()) if users.is_dir() else ():
        if entry.name not in mirror.private:
            yield f"{run}/{mirror.default}/{entry.name}", str(entry)
    for name in mirror.private:
        yield f"{run}/{mirror.default}/{name}", f"{home}/{mirror.default}/{name}"


def _no_proxy_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Exempt this machine from the user's proxy, if there is one."""
    if not any(environ.get(name) or environ.get(name.upper()) for name in PROXY_VARIABLES):
        return {}
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    hosts = f"{exempt},{LOCAL_HOSTS}" if exempt else LOCAL_HOSTS
    return {"no_proxy": hosts, "NO_PROXY": hosts}


# --- writing the files ----------------------------------------------------------------------------------------------


def write_layout(layout: Layout) -> None:
    """Make the files and links. Raises OSError."""
    Path(layout.home).mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    for name, target in layout.links.items():
        link = Path(name)
        link.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        if target.startswith(f"{layout.home}/"):
            Path(target).mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        link.symlink_to(target)
    for name, body in layout.files.items():
        path = Path(name)
        path.parent.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
        try:
            old = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):
            old = {}
        text = json.dumps(_merge_json(old, body), indent=2, ensure_ascii=False) + "\n"
        new_file = path.with_name(f"{path.name}.toolwire")
        new_file.write_text(text, "utf-8")
        new_file.replace(path)  # in one step: another run of the agent may be reading the file


def _merge_json(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: _merge_json(old.get(key), value) for key, value in new.items()}}


# --- printing the plan ----------------------------------------------------------------------------------------------


def write_shell_script(layout: Layout, routes: Mapping[str, str], file: str | None) -> Iterator[str]:
    """The plan as shell lines, to read or to run by hand. Links to the user's own files are left out."""
    yield "# start the gateway, if none is running"
    serve = ["toolwire", "serve", *(["--config", file] if file else [])]
    for name, model in routes.items():
        serve += ["--route", f"{name}={model}"]
    yield shlex.join(serve)
    yield "\n# environment"
    if layout.unset:
        yield f"unset {' '.join(layout.unset)}"
    for name, value in layout.environment.items():
        if value != f"${name}":  # variables such as the key are left for the shell to fill in
            yield f"export {name}=" + (f'"{value}"' if value.startswith("$") else shlex.quote(value))
    for path, body in layout.files.items():
        yield f"\n# {path}{' (other keys are kept)' if path.startswith(layout.home) else ''}"
        yield json.dumps(body, indent=2, ensure_ascii=False)
    private = {path: target for path, target in layout.links.items() if target.startswith(f"{layout.home}/")}
    if private:
        yield "\n# links; the other entries of these folders link to your own"
        yield from (f"{path} -> {target}" for path, target in private.items())
    yield "\n# command"
    yield shlex.join(layout.command)
