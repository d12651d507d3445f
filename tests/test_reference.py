"""Reference pages that are made from the code: losses, options, the configuration, and the command line.

After a wanted change: `python tests/test_reference.py` writes them anew.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from toolwire.cli import VERBS, Parser, module, overview
from toolwire.gateway.settings import config as gateway
from toolwire.gateway.settings.providers import ProviderTable, rows
from toolwire.loss import CODES
from toolwire.options import Options
from toolwire.protocols import ROOMS

PAGES = Path(__file__).parent.parent / "docs" / "reference"


def losses() -> str:
    lines = [
        "# Losses",
        "",
        "Every loss has a code, a place in the input (a JSON Pointer; `event/N/…` in a stream), a severity, what happened and why.",
        "`lost` is gone, `changed` was renamed, moved or rewritten, `added` was made up because the target demands it. This page is",
        "made from `loss.py`.",
    ]
    for severity in ("lost", "changed", "added"):
        lines += ["", f"## {severity}", "", "| code | why |", "|---|---|"]
        rows = sorted((code, why) for code, (kind, why) in CODES.items() if kind == severity)
        lines += [f"| `{code}` | {why} |".format(source="the source", target="the target") for code, why in rows]
    return "\n".join(lines) + "\n"


def options() -> str:
    lines = [
        "# Options",
        "",
        "Keywords of `translate`, `Stream` and `Options`. This page is made from `options.py`.",
        "",
        "| option | default | meaning |",
        "|---|---|---|",
    ]
    lines += [f"| `{name}` | `{default!r}` | {meaning} |" for name, default, meaning in documented(Options)]
    return "\n".join(lines) + "\n"


def documented(shape: type[msgspec.Struct]) -> Iterator[tuple[str, object, str]]:
    """The fields of a Struct: name, default (None too where a field has none), and what stands below it."""
    said = dict(re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', inspect.getsource(shape), re.MULTILINE | re.DOTALL))
    for field in msgspec.structs.fields(shape):
        yield field.name, field.default, " ".join(said[field.name].split())


TABLES: tuple[tuple[str, type[msgspec.Struct], tuple[str, ...]], ...] = (
    ("[server]", gateway.Server, ()),
    ("[server.deadlines]", gateway.Deadlines, ()),
    ("[[server.keys]]", gateway.ClientKey, ()),
    ("[providers.NAME]", ProviderTable, ()),
    ("[models.NAME]", gateway.ModelRule, ("name",)),
    ("[translate]", gateway.Translate, ()),
    ("[store]", gateway.Store, ()),
)


def configuration() -> str:
    lines = [
        "# Configuration",
        "",
        "`toolwire.toml` is looked for at `--config`, `$TOOLWIRE_CONFIG`, `./toolwire.toml` and `toolwire/toolwire.toml` in the XDG",
        "configuration folder; the first that is there is used, and none is needed: a key in the environment makes its provider.",
        "`toolwire check-config` says what is configured and what is wrong with it. [Providers](../guides/providers.md) has",
        "examples. This page is made from `gateway/config.py`, `gateway/providers.py` and `gateway/settings/providers.toml`.",
    ]
    for title, shape, left_out in TABLES:
        lines += [
            "",
            f"## `{title}`",
            "",
            str(inspect.getdoc(shape)),
            "",
            "| key | default | meaning |",
            "|---|---|---|",
        ]
        lines += [
            f"| `{name}` | {spelled(default)} | {meaning} |"
            for name, default, meaning in documented(shape)
            if name not in left_out
        ]
    lines += [
        "",
        'A rule that names no more than a provider and a model can stand in a line: `[models]`, then `fast = "groq/MODEL"`.',
        "",
        "## Well-known servers",
        "",
        "| name | | speaks | key | address in the environment | quirks | models |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in rows().items():
        cells = (row.protocols, row.key_env, row.base_url_env, row.quirks, row.models)
        lines.append(f"| `{name}` | {row.title} | " + " | ".join(map(listed, cells)) + " |")
    lines += ["", *(f"- **{row.title}**: {row.docs}" for row in rows().values() if row.docs)]
    lines += ["", "## Quirks", "", "| protocol | quirk | |", "|---|---|---|"]
    lines += [
        f"| `{place.name}` | `{name}` | {q.about} |" for place in ROOMS.values() for name, q in place.quirks.items()
    ]
    return "\n".join(lines) + "\n"


def listed(words: tuple[str, ...]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def spelled(default: object) -> str:
    """A default as the file would have it; what has none must be given."""
    if default is msgspec.NODEFAULT:
        return "needed"
    if default is None or isinstance(default, msgspec.Struct) or default in ("", ()):
        return ""
    return f"`{json.dumps(default)}`"


def command_line() -> str:
    pages = [("toolwire", overview())]
    for verb, summary in VERBS.items():
        parser = Parser(prog=f"toolwire {verb}", description=f"{summary}.")
        module(verb).arguments(parser)
        pages.append((f"toolwire {verb}", parser))
    lines = [
        "# Command line",
        "",
        "Standard output carries data only; all else goes to standard error. This page is made from `--help`.",
    ]
    for name, parser in pages:
        lines += ["", f"## {name}", "", "```text", shown(parser).rstrip(), "```"]
    return "\n".join(lines) + "\n"


def shown(parser: argparse.ArgumentParser) -> str:
    os.environ["COLUMNS"] = "110"
    return parser.format_help()


MADE = {"losses.md": losses, "options.md": options, "cli.md": command_line, "configuration.md": configuration}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="help is spelled a little differently by each Python")
@pytest.mark.parametrize("page", MADE)
def test_reference_says_what_the_code_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert (PAGES / page).read_text() == MADE[page]()


if __name__ == "__main__":
    for page, make in MADE.items():
        (PAGES / page).write_text(make())
