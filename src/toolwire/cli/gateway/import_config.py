"""`toolwire import`: convert the configuration of another gateway to toolwire.toml."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from toolwire import terminal
from toolwire.cli.config import print_problems
from toolwire.gateway.configuration.load import find_problems
from toolwire.gateway.settings.importers import (
    IMPORTERS,
    Imported,
    ImportProblem,
    convert_config,
    find_importer,
    parse_json,
)
from toolwire.gateway.settings.importers.draft import Note
from toolwire.terminal import CommandError
from toolwire.terminal.packages import install_hint

HEADINGS = {
    "to do": ("added", "To do:"),
    "changed": ("changed", "Converted, but not the same:"),
    "not converted": ("lost", "Not converted:"),
}
"""The colour and the heading of each kind of note."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="LiteLLM's config.yaml, or claude-code-router's config.json")
    parser.add_argument("--from", dest="source", choices=[*IMPORTERS], help="whose file it is (default: by its keys)")
    parser.add_argument("--output", metavar="FILE", help="write the result to a new file instead of standard output")


def run(args: argparse.Namespace) -> int:
    data = terminal.read_input(args.file)
    try:
        value = _parse_file(data.decode("utf-8-sig"), args.file)
        source = args.source or find_importer(value)
        if not source:
            hint = f"name the gateway: --from {' or --from '.join(IMPORTERS)}"
            raise CommandError(f"{args.file} is not a configuration file that is known here", hint)
        imported = convert_config(value, source, Path(args.file).name, os.environ)
    except UnicodeDecodeError:
        raise CommandError(f"{args.file} is not valid UTF-8", "name a YAML or JSON file") from None
    except ImportProblem as problem:
        raise CommandError(f"{args.file}: {problem}", "correct the file, and try again") from None
    if args.output:
        _write_new_file(Path(args.output), imported.toml)
    else:
        sys.stdout.write(imported.toml)
    return _report(imported, args.output)


def _parse_file(text: str, name: str) -> object:
    """Read JSON, or else YAML, which needs a package."""
    if text.lstrip().startswith("{") or Path(name).suffix == ".json":
        return parse_json(text)
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError:
        raise CommandError("reading YAML needs the package PyYAML", install_hint("yaml")) from None
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise ImportProblem(f"invalid YAML{where}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ImportProblem("invalid YAML") from None


def _write_new_file(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise CommandError(f"{path} exists already", "choose another name for --output, or move it away") from None
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}", "check the path of --output") from None


def _report(imported: Imported, file: str | None) -> int:
    for kind, (colour, heading) in HEADINGS.items():
        notes = [note for note in imported.notes if note.kind == kind]
        if notes:
            sys.stderr.write(terminal.paint_text(heading, colour, sys.stderr) + "\n")
            sys.stderr.write(_format_notes(notes))
    problems = [problem for problem in find_problems(imported.toml, os.environ) if problem.severity == "error"]
    print_problems(problems, file or "")
    providers = f"{imported.providers} provider{'s' if imported.providers != 1 else ''}"
    models = f"{imported.models} model{'s' if imported.models != 1 else ''}"
    sys.stderr.write(f"{imported.source}: {providers} and {models} converted.\n")
    command = (
        f"toolwire doctor config --config {file}" if file else "save this as toolwire.toml, then toolwire doctor config"
    )
    sys.stderr.write(f"Next: {command}\n")
    return 2 if problems else 0


def _format_notes(notes: Sequence[Note]) -> str:
    """One paragraph for each text, with the keys that it is about."""
    keys: dict[str, list[str]] = {}
    for note in notes:
        keys.setdefault(note.text, []).append(note.place)
    width = terminal.terminal_width()
    lines = []
    for text, places in keys.items():
        lines += textwrap.wrap(
            f"{', '.join(dict.fromkeys(places))}: {text}",
            width=width,
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "".join(f"{line}\n" for line in lines)
