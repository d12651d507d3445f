"""The environment, files and command that lead one agent to the gateway, as values; and how they come to the disk.

An agent has a home of Toolwire's own, which stays: its sessions, what it was allowed, MCP servers that were added.
What belongs to one run only stands in a folder that goes with it. The user's own files are never written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from toolwire.agents.data import Agent, Mirror

PLACE = re.compile(r"\{(\w+)(:quoted)?\}")
PROXIES = ("http_proxy", "https_proxy", "all_proxy")
HERE = "127.0.0.1,localhost,::1"
PRIVATE = 0o700


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

    def changed(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The environment that the agent gets."""
        kept = {name: value for name, value in environ.items() if name not in self.removed}
        return {**kept, **self.environment}


def home_of(agent: Agent, environ: Mapping[str, str]) -> str:
    """Where an agent keeps what it keeps: beside the gateway's store."""
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the specification wants others passed over
        state = str(Path(environ.get("HOME") or "/", ".local", "state"))
    return str(Path(state, "toolwire", "agents", agent.name))


def laid_out(
    agent: Agent, environ: Mapping[str, str], *, protocol: str, origin: str, key: str, model: str, run: str
) -> Layout:
    """What this agent is given to ask the gateway at `origin` for `model`; `run` is the folder that goes."""
    spoken = agent.speaks[protocol]
    home = home_of(agent, environ)
    texts = {**spoken, "origin": origin, "key": key, "model": model, "home": home, "run": run}
    texts["base"] = origin + spoken.get("path", "")
    links = {
        path: target
        for variable, mirror in agent.mirrors.items()
        for path, target in _mirrored(variable, mirror, environ, home, run)
    }
    environment = {variable: f"{run}/{mirror.usual}" for variable, mirror in agent.mirrors.items()}
    environment |= {name: _text(_filled(value, texts)) for name, value in agent.environment.items()}
    return Layout(
        command=(agent.command, *(_filled(text, texts) for text in agent.arguments)),
        environment={**environment, **_direct(environ)},
        removed=agent.removed,
        files={_filled(path, texts): _filled(body, texts) for path, body in agent.files.items()},
        links=links,
        home=home,
    )


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _filled(value: Any, texts: Mapping[str, str]) -> Any:
    """With the texts in their places; braces that name none of them stay."""
    if isinstance(value, dict):
        return {_filled(key, texts): _filled(one, texts) for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, texts) for one in value]
    if not isinstance(value, str):
        return value

    def text(found: re.Match[str]) -> str:
        if found[1] not in texts:
            return found[0]
        return json.dumps(texts[found[1]], ensure_ascii=False) if found[2] else texts[found[1]]

    return PLACE.sub(text, value)


def _mirrored(
    variable: str, mirror: Mirror, environ: Mapping[str, str], home: str, run: str
) -> Iterator[tuple[str, str]]:
    theirs = Path(environ.get(variable) or Path(environ.get("HOME") or "/", mirror.usual))
    for entry in sorted(theirs.iterdir()) if theirs.is_dir() else ():
        if entry.name not in mirror.own:
            yield f"{run}/{mirror.usual}/{entry.name}", str(entry)
    for name in mirror.own:
        yield f"{run}/{mirror.usual}/{name}", f"{home}/{mirror.usual}/{name}"


def _direct(environ: Mapping[str, str]) -> dict[str, str]:
    """No proxy is asked for what is on this machine."""
    if not any(environ.get(name) or environ.get(name.upper()) for name in PROXIES):
        return {}
    excepted = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    both = f"{excepted},{HERE}" if excepted else HERE
    return {"no_proxy": both, "NO_PROXY": both}


# --- to the disk --------------------------------------------------------------------------------------------------


def written(layout: Layout) -> None:
    """Make the files and links. Raises OSError."""
    Path(layout.home).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    for name, target in layout.links.items():
        link = Path(name)
        link.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        if target.startswith(f"{layout.home}/"):
            Path(target).mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        link.symlink_to(target)
    for name, body in layout.files.items():
        path = Path(name)
        path.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        text = json.dumps(_merged(_there(path), body), indent=2, ensure_ascii=False) + "\n"
        fresh = path.with_name(f"{path.name}.toolwire")
        fresh.write_text(text, "utf-8")
        fresh.replace(path)  # another run of the agent may be reading it


def _there(path: Path) -> Any:
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def _merged(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{key: _merged(old.get(key), value) for key, value in new.items()}}
