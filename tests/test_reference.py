"""Reference pages that are made from the code: the codes of losses, the options, and the command line.

After a wanted change: `python tests/test_reference.py` writes them anew.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from toolwire.cli import VERBS, Parser, overview
from toolwire.loss import CODES
from toolwire.options import Options

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
    source = inspect.getsource(Options)
    said = dict(re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL))
    lines = [
        "# Options",
        "",
        "Keywords of `translate`, `Stream` and `Options`. This page is made from `options.py`.",
        "",
        "| option | default | meaning |",
        "|---|---|---|",
    ]
    for field in msgspec.structs.fields(Options):
        meaning = " ".join(said[field.name].split())
        lines.append(f"| `{field.name}` | `{field.default!r}` | {meaning} |")
    return "\n".join(lines) + "\n"


def command_line() -> str:
    pages = [("toolwire", overview())]
    for verb, summary in VERBS.items():
        parser = Parser(prog=f"toolwire {verb}", description=f"{summary}.")
        import_module(f"toolwire.cli.{verb}").arguments(parser)
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


MADE = {"losses.md": losses, "options.md": options, "cli.md": command_line}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="help is spelled a little differently by each Python")
@pytest.mark.parametrize("page", MADE)
def test_reference_says_what_the_code_says(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    assert (PAGES / page).read_text() == MADE[page]()


if __name__ == "__main__":
    for page, make in MADE.items():
        (PAGES / page).write_text(make())
