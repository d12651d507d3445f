"""How commands are called: parsing the words of a command line, and helping where they are wrong."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from toolwire import terminal
from toolwire.cli.commands import COMMANDS, load_command_module, subcommands
from toolwire.core.codec import Codec
from toolwire.terminal import CommandError
from toolwire.terminal.text import pad_text, text_width, wrap_text

PASSTHROUGH_COMMANDS = ("run",)
"""Commands that pass on the arguments after `--`."""
OTHER_WORDS = {
    "start": "serve", "server": "serve", "gateway": "serve", "proxy": "serve", "up": "serve",
    "launch": "run", "exec": "run", "agent": "run", "agents": "run",
    "convert": "translate", "validate": "doctor config", "config": "doctor config", "key": "keys", "token": "keys",
    "diagnose": "doctor", "status": "doctor", "health": "doctor", "info": "doctor",
    "usage": "costs", "limit": "costs limits",
}  # fmt: skip
"""Commands of other programs, and ours that do the same."""
OLD_COMMANDS = (
    ("check-config", "--hash-key", "keys hash"),
    ("check-config", "", "doctor config"),
    ("matrix", "", "demo matrix"),
    ("limits", "", "costs limits"),
)
"""Commands that are part of another one now, or such a command with an option, and what to write instead."""
PROTOCOL_WORDS = {"claude": "anthropic", "messages": "anthropic", "google": "gemini", "vertex": "gemini"}
"""Words for protocols that are not part of their names."""
CONFIG_HELP = "configuration file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)"
GLOBAL_OPTIONS = {"-h": "--help", "--help": "--help", "-V": "--version", "--version": "--version"}
REWORDINGS = (
    (re.compile(r"the following arguments are required: (.*)"), r"missing: \1"),
    (re.compile(r"argument (.*): expected (one|at least one) argument"), r"\1 needs a value"),
    (re.compile(r"argument (.*): invalid int value: '(.*)'"), r"\1: `\2` is not a whole number"),
    (re.compile(r"argument (.*): invalid float value: '(.*)'"), r"\1: `\2` is not a number"),
    (re.compile(r"argument (.*): not allowed with argument (.*)"), r"\1 and \2 exclude each other"),
    (re.compile(r"argument (.*): ignored explicit argument '(.*)'"), r"\1 takes no value"),
    (re.compile(r"unrecognized arguments: (.*)"), r"unexpected arguments: `\1`"),
)
"""Messages of argparse, and ours."""
MAX_HELP_WIDTH, MAX_LABEL_WIDTH, MIN_HELP_WIDTH = 100, 26, 20
GROUP_TITLES = {"positional arguments": "arguments"}


class CommandParser(argparse.ArgumentParser):
    """The arguments of one command. Bad usage is a CommandError that says what was probably meant."""

    def __init__(self, command: str) -> None:
        super().__init__(f"toolwire {command}", description=f"{COMMANDS[command].summary}.", allow_abbrev=False)
        self.subcommands = [(f"  {name}", COMMANDS[f"{command} {name}"].summary) for name in subcommands(command)]
        load_command_module(command).add_arguments(self)
        if COMMANDS[command].reads:
            add_config_argument(self)

    @property
    def arguments(self) -> Sequence[argparse.Action]:
        """The arguments that the help shows."""
        return [action for action in self._actions if action.help != argparse.SUPPRESS]

    def check_options(self, words: Iterable[str]) -> None:
        for word in words:
            name = word.partition("=")[0]
            if word == "--":
                return
            if re.match(r"--?[A-Za-z]", word) and " " not in word and name not in self._option_string_actions:
                known = [option for action in self.arguments for option in action.option_strings]
                raise CommandError(f"unknown option `{name}`", self._hint(name, known))

    def _hint(self, word: str, known: Sequence[str]) -> str:
        hint = suggest_name(word, known)
        return hint if hint.startswith("did") else f"see `{self.prog} --help`"

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        name = f"value of {action.option_strings[0]}" if action.option_strings else action.dest
        raise CommandError(f"unknown {name} `{value}`", suggest_name(str(value), choices))

    def error(self, message: str) -> NoReturn:
        hint = f"see `{self.prog} --help`"
        for pattern, ours in REWORDINGS:
            if pattern.fullmatch(message):
                message = pattern.sub(ours, message)
                break
        for action in self.arguments:
            if action.choices and not action.option_strings and message == f"missing: {action.dest}":
                hint = f"{action.dest} is one of: {', '.join(map(str, action.choices))}"
        raise CommandError(message, hint)

    def format_usage(self) -> str:
        """One line: what must be given, and in what order."""
        words = [self.prog]
        for action in self.arguments:
            label = argument_label(action)
            if not action.option_strings:
                words.append(f"[{label}]" if action.nargs in ("?", "*") else label)
            elif action.required:
                words.append(label)
        return f"usage: {self.usage or ' '.join((*words, '[options]'))}\n"

    def format_help(self) -> str:
        """The usage, and a table of the arguments of each group."""
        width = min(terminal.terminal_width(), MAX_HELP_WIDTH)
        label, _, usage = self.format_usage().partition(" ")
        first, *more = wrap_text(usage.strip(), width - len(label) - 1)
        indent = " " * (len(label) + 1)
        lines = [f"{terminal.paint_text(label, 'head')} {first}", *(f"{indent}{line}" for line in more), ""]
        lines += wrap_text(self.description or "", width)
        shown = {action: (f"  {argument_label(action)}", argument_help(action)) for action in self.arguments}
        widths = [text_width(label) for label, _ in shown.values()]
        label_width = max(width for width in widths if width <= MAX_LABEL_WIDTH)
        for group in self._action_groups:
            rows = [shown[action] for action in group._group_actions if action in shown]
            if rows:
                lines += ["", terminal.paint_text(f"{GROUP_TITLES.get(group.title or '', group.title)}:", "head")]
                lines += help_lines(rows, label_width, width)
        if self.subcommands:
            lines += ["", terminal.paint_text("subcommands:", "head")]
            lines += help_lines(self.subcommands, label_width, width)
        lines += ["", *self.epilog.splitlines()] if self.epilog else []
        return "\n".join(lines) + "\n"


def add_config_argument(parser: argparse.ArgumentParser) -> None:
    """For commands that use the file of the working folder only if it is trusted."""
    parser.add_argument("--config", metavar="FILE", help=CONFIG_HELP.replace("toml,", "toml if you trust it,"))


def argument_label(action: argparse.Action) -> str:
    """An argument as it is written on the command line."""
    choices = "|".join(map(str, action.choices or ()))
    metavar = choices or (action.metavar if isinstance(action.metavar, str) else action.dest.upper().replace("_", "-"))
    value = "" if action.nargs == 0 else f"{metavar} …" if action.nargs in ("*", "+") else metavar
    return f"{', '.join(action.option_strings)} {value}".strip()


def argument_help(action: argparse.Action) -> str:
    return "show this help" if isinstance(action, argparse._HelpAction) else (action.help or "").replace("%%", "%")


def help_lines(rows: Iterable[tuple[str, str]], label_width: int, width: int) -> Iterator[str]:
    """Labels and their help in two columns; a long label has a line of its own."""
    for label, text in rows:
        first, *more = wrap_text(text, max(width - label_width - 2, MIN_HELP_WIDTH))
        if text_width(label) > label_width:
            yield label
            label = ""
        yield f"{pad_text(label, label_width)}  {first}"
        yield from (f"{' ' * label_width}  {line}" for line in more)


def parse_command(words: Sequence[str]) -> tuple[str, argparse.Namespace]:
    """The command and its arguments. Files may come before and after the options."""
    if not words:
        return "help", argparse.Namespace(topic=None, is_short=True)
    if words[0] in GLOBAL_OPTIONS:
        words = [GLOBAL_OPTIONS[words[0]].removeprefix("--"), *words[1:]]
    command, given = find_command(words)
    parser = CommandParser(command)
    separator = given.index("--") if command in PASSTHROUGH_COMMANDS and "--" in given else len(given)
    parser.check_options(given[:separator])
    args = parser.parse_intermixed_args(given[:separator])
    if separator < len(given):
        args.agent_arguments = given[separator + 1 :]
    return command, args


def find_command(words: Sequence[str]) -> tuple[str, list[str]]:
    """The command that the words begin with, and the words after it."""
    words = replace_old_command(words)
    name, *given = words
    if name not in COMMANDS:
        raise unknown_command(name)
    known = subcommands(name)
    if not given or given[0].startswith("-") or not known:
        return name, given
    if given[0] not in known:
        raise CommandError(f"unknown subcommand `{name} {given[0]}`", suggest_name(given[0], known))
    return f"{name} {given[0]}", given[1:]


def replace_old_command(words: Sequence[str]) -> Sequence[str]:
    """An old command still works, and says what to write instead."""
    for old, option, new in OLD_COMMANDS:
        if words[0] == old and (not option or option in words):
            written = f"{old} {option}".strip()
            terminal.print_note(f"`toolwire {written}` is `toolwire {new}` now")
            return [*new.split(), *(word for word in words[1:] if word != option)]
    return words


def unknown_command(name: str) -> CommandError:
    """A command that does not exist, with what was probably meant."""
    if name.startswith("-"):
        hint = suggest_name(name, [option for option in GLOBAL_OPTIONS if option.startswith("--")])
        return CommandError(f"unknown option `{name}`", hint if hint.startswith("did") else "see `toolwire help`")
    meant = OTHER_WORDS.get(name)
    hint = f"did you mean `{meant}`?" if meant else suggest_name(name, COMMANDS)
    if not hint.startswith("did"):
        hint = f"did you mean `toolwire run {name}`?" if is_agent(name) else "`toolwire help` lists the commands"
    return CommandError(f"unknown command `{name}`", hint)


def is_agent(name: str) -> bool:
    from toolwire.agents import load_agents

    return name in load_agents()


def find_protocol(name: str, option: str, others: Iterable[str] = ()) -> Codec:
    """The codec of the protocol that was given to this option, which may take other names too."""
    from toolwire.protocols import CODECS, UnknownProtocol, find_codec

    try:
        return find_codec(name)
    except UnknownProtocol:
        raise unknown_protocol(name, option, dict.fromkeys((*CODECS, *others))) from None


def unknown_protocol(name: str, option: str, known: Iterable[str]) -> CommandError:
    meant = PROTOCOL_WORDS.get(name.lower())
    hint = f"did you mean `{meant}`?" if meant else suggest_name(name, known)
    return CommandError(f"{option}: unknown protocol `{name}`", hint)


def suggest_name(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown word: what was probably meant, or what is possible."""
    from toolwire.gateway.settings import problems

    return problems.suggest_name(word, known)
