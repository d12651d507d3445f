"""What a run would do, as lines for a shell: to be read, or to be taken over by hand."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence

from toolwire.agents.layout import Layout

RUN = "$TOOLWIRE_RUN"
"""The folder that goes with a run."""


def script(layout: Layout, routes: Mapping[str, str], file: str | None, passed: Sequence[str]) -> str:
    """Environment, files and command. Of folders that are shown through, only what is the agent's own."""
    return "\n".join(_lines(layout, routes, file, passed)) + "\n"


def _lines(layout: Layout, routes: Mapping[str, str], file: str | None, passed: Sequence[str]) -> Iterator[str]:
    yield "# the gateway, where none is running"
    serve = ["toolwire", "serve", *(["--config", file] if file else [])]
    for name, model in routes.items():
        serve += ["--route", f"{name}={model}"]
    yield shlex.join(serve)
    yield "\n# the environment"
    if layout.removed:
        yield f"unset {' '.join(layout.removed)}"
    yield from (f"export {name}={_quoted(value)}" for name, value in layout.environment.items() if value != f"${name}")
    for path, body in layout.files.items():
        yield f"\n# {path}{', besides what stands in it' if path.startswith(layout.home) else ''}"
        yield json.dumps(body, indent=2, ensure_ascii=False)
    own = {path: target for path, target in layout.links.items() if target.startswith(f"{layout.home}/")}
    if own:
        yield "\n# links; everything else beside them leads to your own folders"
        yield from (f"{path} -> {target}" for path, target in own.items())
    yield "\n# the command"
    yield shlex.join([*layout.command, *passed])


def _quoted(text: str) -> str:
    """For a shell that fills in the folder and the key itself."""
    return f'"{text}"' if text.startswith("$") else shlex.quote(text)
