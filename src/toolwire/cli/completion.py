"""`toolwire completion SHELL`: the script that completes commands, options, protocols, agents and files.

It is made from the parsers of the commands, so that it needs no program while the user types.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

from toolwire.cli.commands import COLOUR_CHOICES, COMMANDS, subcommands
from toolwire.cli.usage import CommandParser, argument_help

FILE_METAVARS = ("FILE", "TOOLS.json", "REQUEST.json")
FOLDER_METAVARS = ("FOLDER",)
COLOUR_WORDS = " ".join(COLOUR_CHOICES)
INSTALL_LINES = {
    "bash": 'eval "$(toolwire completion bash)"     # in ~/.bashrc',
    "zsh": 'eval "$(toolwire completion zsh)"      # in ~/.zshrc, after compinit',
    "fish": "toolwire completion fish | source     # in ~/.config/fish/config.fish",
}


class Argument(NamedTuple):
    """What a shell must know about an option or a positional argument."""

    names: Sequence[str]
    help: str
    metavar: str
    takes_value: bool
    words: Sequence[str]
    """Its possible values, as far as they are known."""
    repeats: bool


class CommandTable(NamedTuple):
    name: str
    summary: str
    options: Sequence[Argument]
    positionals: Sequence[Argument]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(INSTALL_LINES), help="the shell to make it for")
    parser.epilog = "\n".join(("To use it, add one line:", *(f"  {line}" for line in INSTALL_LINES.values())))


def run(args: argparse.Namespace) -> int:
    tables = [read_command(name) for name in COMMANDS]
    lines = {"bash": bash_lines, "zsh": zsh_lines, "fish": fish_lines}[args.shell](tables)
    head = "" if args.shell == "zsh" else f"# {INSTALL_LINES[args.shell]}\n"
    sys.stdout.write(head + "".join(f"{line}\n" for line in lines))
    return 0


# --- the tables -------------------------------------------------------------------------------------------------------


def read_command(name: str) -> CommandTable:
    arguments = [make_argument(action) for action in CommandParser(name).arguments]
    if words := subcommands(name):
        arguments.append(Argument((), "", "SUBCOMMAND", True, words, False))
    colour = Argument(("--color",), "auto, always or never", "WHEN", True, COLOUR_CHOICES, False)
    options = [*(one for one in arguments if one.names), colour]
    return CommandTable(name, COMMANDS[name].summary, options, [one for one in arguments if not one.names])


def make_argument(action: argparse.Action) -> Argument:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest
    takes_value = action.nargs != 0
    words = [str(choice) for choice in action.choices] if action.choices else known_words(metavar)
    repeats = action.nargs in ("*", "+") or isinstance(action, argparse._AppendAction)
    return Argument(action.option_strings, argument_help(action), metavar, takes_value, words, repeats)


def known_words(metavar: str) -> Sequence[str]:
    from toolwire.agents import load_agents
    from toolwire.cli.translation.matrix import load_scenarios
    from toolwire.protocols import CODECS

    match metavar:
        case "PROTOCOL":
            return list(CODECS)
        case "AGENT":
            return list(load_agents())
        case "COMMAND":
            return first_words(COMMANDS)
        case "SCENARIO":
            return [scenario.scenario for scenario in load_scenarios()]
    return ()


def read_script(shell: str) -> str:
    """The part of a script that does not depend on the commands."""
    return (files(__package__) / f"completion.{shell}").read_text("utf-8").removesuffix("\n")


def first_words(names: Iterable[str]) -> list[str]:
    """The commands without their subcommands."""
    return [name for name in names if " " not in name]


# --- bash -------------------------------------------------------------------------------------------------------------


def bash_lines(tables: Sequence[CommandTable]) -> Iterator[str]:
    yield read_script("bash")
    yield "# What the value of an option is: files, folders, some words, or unknown; empty if it takes none."
    yield '_toolwire_value() {\n  want=""\n  case "$1 $2" in'
    for table in tables:
        for option in table.options:
            if option.takes_value:
                patterns = "|".join(f'"{table.name} {name}"' for name in option.names)
                yield f"    {patterns}) want={shlex.quote(bash_value(option))} ;;"
    yield f'    " --color") want="words {COLOUR_WORDS}" ;;'
    yield '  esac\n}\n_toolwire_options() {\n  case "$1" in\n    "") echo "--help --version --color" ;;'
    for table in tables:
        names = " ".join(name for option in table.options for name in option.names if name.startswith("--"))
        yield f'    "{table.name}") echo "{names}" ;;'
    yield '  esac\n}\n_toolwire_place() {\n  case "$1 $2" in'
    yield f"    ' 0') echo 'words {' '.join(first_words(table.name for table in tables))}' ;;"
    for table in tables:
        for number, argument in enumerate(table.positionals):
            pattern = f'"{table.name} "*' if argument.repeats else f'"{table.name} {number}"'
            yield f'    {pattern}) echo "{bash_value(argument)}" ;;'
    yield "  esac\n}\ncomplete -F _toolwire toolwire"


def bash_value(argument: Argument) -> str:
    if argument.words:
        return f"words {' '.join(argument.words)}"
    return "files" if argument.metavar in FILE_METAVARS else "folders" if argument.metavar in FOLDER_METAVARS else "any"


# --- zsh --------------------------------------------------------------------------------------------------------------


def zsh_lines(tables: Sequence[CommandTable]) -> Iterator[str]:
    yield f"#compdef toolwire\n# {INSTALL_LINES['zsh']}"
    yield "_toolwire() {\n  local context state state_descr line\n  typeset -A opt_args\n  local -a commands=("
    yield from (f"    {shlex.quote(f'{table.name}:{table.summary}')}" for table in tables if " " not in table.name)
    pairs = " ".join(shlex.quote(table.name) for table in tables if " " in table.name)
    yield f"  )\n  local -a subcommands=({pairs})"
    yield "  _arguments -C '(- *)'{-h,--help}'[list the commands]' '(- *)'{-V,--version}'[print the version]' \\"
    yield f"    '--color=[auto, always or never]:WHEN:({COLOUR_WORDS})' \\"
    yield "    '1: :->command' '*:: :->arguments'"
    yield "  case $state in"
    yield "    command) _describe -t commands command commands ;;"
    yield "    arguments)"
    yield "      if (( CURRENT > 2 && ${subcommands[(Ie)$words[1] $words[2]]} )); then"
    yield '        words[1,2]=("$words[1] $words[2]"); (( CURRENT-- ))\n      fi'
    yield "      case $words[1] in"
    for table in tables:
        specs = [zsh_option(option, name) for option in table.options for name in option.names]
        specs += map(zsh_positional, table.positionals)
        yield f'        "{table.name}")'
        yield "          _arguments " + " \\\n            ".join(map(shlex.quote, specs)) + " ;;"
    yield "      esac ;;\n  esac\n}"
    yield 'if [ "$funcstack[1]" = "_toolwire" ]; then _toolwire "$@"; else compdef _toolwire toolwire; fi'


def zsh_option(option: Argument, name: str) -> str:
    repeats = "*" if option.repeats else ""
    text = option.help.replace("[", "(").replace("]", ")").replace(":", "\\:")
    takes_value = "=" if option.takes_value and name.startswith("--") else ""
    return f"{repeats}{name}{takes_value}[{text}]{zsh_value(option) if option.takes_value else ''}"


def zsh_positional(argument: Argument) -> str:
    return ("*" if argument.repeats else "") + zsh_value(argument, "optional" if not argument.repeats else "")


def zsh_value(argument: Argument, presence: str = "") -> str:
    metavar = argument.metavar.replace(":", "\\:")
    action = f"({' '.join(argument.words)})" if argument.words else ""
    if argument.metavar in FILE_METAVARS:
        action = "_files"
    elif argument.metavar in FOLDER_METAVARS:
        action = "_files -/"
    return f"{':' if presence else ''}:{metavar}:{action}"


# --- fish -------------------------------------------------------------------------------------------------------------


def fish_lines(tables: Sequence[CommandTable]) -> Iterator[str]:
    with_value = [
        f"{table.name} {name}" for table in tables for one in table.options if one.takes_value for name in one.names
    ]
    yield f"set -g __toolwire_with_value {' '.join(map(fish_quote, with_value))}"
    pairs = [table.name for table in tables if " " in table.name]
    yield f"set -g __toolwire_subcommands {' '.join(map(fish_quote, pairs))}"
    yield read_script("fish")
    for table in tables:
        command = f'"{table.name}"'
        if table.name not in pairs:
            yield f"complete -c toolwire -n __toolwire_at -a {table.name} -d {fish_quote(table.summary)}"
        for option in table.options:
            flags = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = fish_value(option) if option.takes_value else ""
            text = fish_quote(option.help)
            yield f"complete -c toolwire -n '__toolwire_at {command}' {flags}{value} -d {text}"
        for number, argument in enumerate(table.positionals):
            place = command if argument.repeats else f"{command} {number}"
            if argument.metavar in FILE_METAVARS or argument.words:
                value = fish_value(argument).replace(" -r", "").replace(" -x", "")
                yield f"complete -c toolwire -n '__toolwire_at {place}'{value}"


def fish_value(argument: Argument) -> str:
    if argument.words:
        return f" -x -a {fish_quote(' '.join(argument.words))}"
    if argument.metavar in FOLDER_METAVARS:
        return " -x -a '(__fish_complete_directories)'"
    return " -r -F" if argument.metavar in FILE_METAVARS else " -x"


def fish_quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
