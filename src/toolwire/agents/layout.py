"""The environment, files and command that lead one agent to the gateway, as values; and how they come to the disk.

An agent has a home of Toolwire's own, which stays: its sessions, what it was allowed, MCP servers that were added.
What belongs to one run only stands in a folder that goes with it. The user's own files are never written.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwire.agents import Agent, Mirror

PLACEHOLDER = re.compile(r"\{(\w+)(:quoted)?\}")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy")
LOCAL_HOSTS = "127.0.0.1,localhost,::1"
PRIVATE_MODE = 0o700


class Layout(Struct, frozen=True, kw_only=True):
    """All that an agent is given."""

    command: tuple[str, ...]
    """Without the user's own arguments."""
    environment: Mapping[str, str]
    removed: tuple[str, ...]
    files: Mapping[str, dict[str, Any]]
    """JSON, by path."""
    links: Mapping[str, str]
    """By path, where they lead."""
    home: str

    def apply_to_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment that the agent gets."""
        kept = {name: value for name, value in environ.items() if name not in self.removed}
        return {**kept, **self.environment}


def agent_home(agent: Agent, environ: Mapping[str, str]) -> str:
    """Where an agent keeps what it keeps: beside the gateway's store."""
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the specification wants others passed over
        state = str(Path(environ.get("HOME") or "/", ".local", "state"))
    return str(Path(state, "toolwire", "agents", agent.name))


def plan_layout(
    agent: Agent, environ: Mapping[str, str], *, protocol: str, origin: str, key: str, model: str, run: str
) -> Layout:
    """What this agent is given to ask the gateway at `origin` for `model`; `run` is the folder that goes."""
    spoken = agent.speaks[protocol]
    home = agent_home(agent, environ)
    texts = {**spoken, "origin": origin, "key": key, "model": model, "home": home, "run": run}
    texts["base"] = origin + spoken.get("path", "")
    links = {
        path: target
        for variable, mirror in agent.mirrors.items()
        for path, target in _mirror_links(variable, mirror, environ, home, run)
    }
    environment = {variable: f"{run}/{mirror.usual}" for variable, mirror in agent.mirrors.items()}
    environment |= {name: _to_text(_fill_placeholders(value, texts)) for name, value in agent.environment.items()}
    return Layout(
        command=(agent.command, *(_fill_placeholders(text, texts) for text in agent.arguments)),
        environment={**environment, **_no_proxy_variables(environ)},
        removed=agent.removed,
        files={_fill_placeholders(path, texts): _fill_placeholders(body, texts) for path, body in agent.files.items()},
        links=links,
        home=home,
    )


def _to_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fill_placeholders(value: Any, texts: Mapping[str, str]) -> Any:
    """With the texts in their places; braces that name none of them stay."""
    if isinstance(value, dict):
        return {_fill_placeholders(key, texts): _fill_placeholders(one, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [_fill_placeholders(one, texts) for one in value]
    if not isinstance(value, str):
        return value

    def replacement(found: re.Match[str]) -> str:
        if found[1] not in texts:
            return found[0]
        return json.dumps(texts[found[1]], ensure_ascii=False) if found[2] else texts[found[1]]

    return PLACEHOLDER.sub(replacement, value)


def _mirror_links(
    variable: str, mirror: Mirror, environ: Mapping[str, str], home: str, run: str
) -> Iterator[tuple[str, str]]:
    theirs = Path(environ.get(variable) or Path(environ.get("HOME") or "/", mirror.usual))
    for entry in sorted(theirs.iterdir()) if theirs.is_dir() else ():
        if entry.name not in mirror.own:
            yield f"{run}/{mirror.usual}/{entry.name}", str(entry)
    for name in mirror.own:
        yield f"{run}/{mirror.usual}/{name}", f"{home}/{mirror.usual}/{name}"


def _no_proxy_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """No proxy is asked for what is on this machine."""
    if not any(environ.get(name) or environ.get(name.upper()) for name in PROXY_VARIABLES):
        return {}
    excepted = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    both = f"{excepted},{LOCAL_HOSTS}" if excepted else LOCAL_HOSTS
    return {"no_proxy": both, "NO_PROXY": both}


# --- to the disk --------------------------------------------------------------------------------------------------


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
        text = json.dumps(_merge_json(_read_json_file(path), body), indent=2, ensure_ascii=False) + "\n"
        fresh = path.with_name(f"{path.name}.toolwire")
        fresh.write_text(text, "utf-8")
        fresh.replace(path)  # another run of the agent may be reading it


def _read_json_file(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _merge_json(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: _merge_json(old.get(key), value) for key, value in new.items()}}


# --- What a run would do, as lines for a shell: to be read, or to be taken over by hand ---


RUN_FOLDER_VARIABLE = "$TOOLWIRE_RUN"
"""The folder that goes with a run."""


def write_shell_script(
    layout: Layout, routes: Mapping[str, str], file: str | None, agent_arguments: Sequence[str]
) -> str:
    """Environment, files and command. Of folders that are shown through, only what is the agent's own."""
    return "\n".join(_script_lines(layout, routes, file, agent_arguments)) + "\n"


def _script_lines(
    layout: Layout, routes: Mapping[str, str], file: str | None, agent_arguments: Sequence[str]
) -> Iterator[str]:
    yield "# the gateway, where none is running"
    serve = ["toolwire", "serve", *(["--config", file] if file else [])]
    for name, model in routes.items():
        serve += ["--route", f"{name}={model}"]
    yield shlex.join(serve)
    yield "\n# the environment"
    if layout.removed:
        yield f"unset {' '.join(layout.removed)}"
    yield from (
        f"export {name}={_quote_value(value)}" for name, value in layout.environment.items() if value != f"${name}"
    )
    for path, body in layout.files.items():
        yield f"\n# {path}{', besides what stands in it' if path.startswith(layout.home) else ''}"
        yield json.dumps(body, indent=2, ensure_ascii=False)
    own = {path: target for path, target in layout.links.items() if target.startswith(f"{layout.home}/")}
    if own:
        yield "\n# links; everything else beside them leads to your own folders"
        yield from (f"{path} -> {target}" for path, target in own.items())
    yield "\n# the command"
    yield shlex.join([*layout.command, *agent_arguments])


def _quote_value(text: str) -> str:
    """For a shell that fills in the folder and the key itself."""
    return f'"{text}"' if text.startswith("$") else shlex.quote(text)
