"""`toolwire keys`: make client keys in the configuration file or in the store, list them, and change those of the
store. It writes the file, which is read as a whole above the features, so it is not in theirs."""

from __future__ import annotations

import argparse
import getpass
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict

from toolwire import terminal
from toolwire.cli.config import print_problems, refuse_config
from toolwire.cli.trust import open_file
from toolwire.cli.usage import add_config_argument
from toolwire.gateway.configuration.key_file import (
    AddedTable,
    KeyFile,
    add_console_key,
    add_key,
    read_key_file,
    write_console_table,
)
from toolwire.gateway.configuration.load import read_opened_config
from toolwire.gateway.features.keys import key_edits
from toolwire.gateway.features.keys.key_records import (
    EditKey,
    KeyChange,
    KeyRecords,
    KeyRefused,
)
from toolwire.gateway.features.limits.settings import AMOUNT_FIELDS, describe_amounts
from toolwire.gateway.settings.client_keys import (
    CLIENT_KEY_VARIABLE,
    NAME_RULE,
    NEW_KEY_COMMAND,
    NEW_STORED_KEY_COMMAND,
    TEAM_RULE,
    guessable_hashes,
    hash_key,
    is_key_name,
    make_key,
    read_stored_keys,
    write_key_table,
)
from toolwire.gateway.settings.config import ClientKey, LimitAmounts
from toolwire.gateway.settings.problems import ConfigError, suggest_name
from toolwire.gateway.settings.times import DURATION_HINT, TIME_HINT, format_time, parse_duration, parse_time
from toolwire.gateway.settings.trust import hash_text, is_trusted, remember_trust
from toolwire.gateway.store.command_store import require_up, use_store
from toolwire.policy.rules import is_glob
from toolwire.terminal import CommandError
from toolwire.terminal.text import wrap_text

EXIT_CANNOT_WRITE = 1
MIN_KEY_LENGTH = 20
"""A shorter key can be guessed from its hash."""
SHOWN_HASH_DIGITS = 8
"""Enough to tell keys apart."""
DEFAULT_GRACE = "24h"
NEVER = "never"
STORE = "store"
"""Where a key is, in place of a file."""
RIGHTS = ("team", "models", "providers", "mcp_servers", "expires", "limits")
"""The options of `new` and `limit` that are fields of a key."""
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "new": ("name", "write", "store", "console", *RIGHTS),
    "hash": ("name",),
    "list": (),
    "limit": ("name", *RIGHTS),
    "disable": ("name",),
    "enable": ("name",),
    "rotate": ("name", "grace"),
    "audit": ("name",),
}
"""What each action takes, besides --config and --json."""
Value = TypeVar("Value")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    actions = "make a key, print the lines for one that you have, list all keys, or, for keys of the store: change what"
    more = "one may do, disable or enable it, replace it by a new one, or show who has changed what"
    add("action", choices=OPTIONS, help=f"{actions} {more}")
    add("name", nargs="?", metavar="NAME", help="whose key it is; the log shows this name")
    add("--team", metavar="TEAM", help="the team of the client")
    models = "names and patterns of the models that the client may use (default: all)"
    add("--models", nargs="+", action="extend", metavar="PATTERN", help=models)
    providers = "names and patterns of the providers that get its requests (default: all)"
    add("--providers", nargs="+", action="extend", metavar="PATTERN", help=providers)
    servers = "names and patterns of the MCP servers whose tools it gets (default: all that [mcp] offers to it)"
    add("--mcp-servers", nargs="+", action="extend", metavar="PATTERN", help=servers)
    limits = "how much it may use, such as dollars_per_day=5 parallel_requests=4; AMOUNT=none removes one"
    add("--limits", nargs="+", action="extend", metavar="AMOUNT=NUMBER", help=limits)
    expires = f"when the key stops working: a date, a time, a duration such as 30d, or `{NEVER}` (default)"
    add("--expires", metavar="WHEN", help=expires)
    write = "add the key to the configuration file, and change nothing else in it; without a file, make ./toolwire.toml"
    add("--write", action="store_true", help=write)
    store = "add the key to the store: all gateways that use it know the key within seconds"
    add("--store", action="store_true", help=store)
    console = "make the key of the console instead of a client's: whoever has it sees what all clients send and get"
    add("--console", action="store_true", help=console)
    grace = f"rotate: how long the old key still works, such as 2h (default: {DEFAULT_GRACE}); 0s for not at all"
    add("--grace", metavar="TIME", help=grace)
    add_config_argument(parser)
    add("--json", action="store_true", help="print one JSON document")


def run(args: argparse.Namespace) -> int:
    check_options(args)
    if args.action == "hash":  # it works before there is a file
        print_key_hash(args)
        return 0
    try:
        file = read_key_file(open_file(args.config))
        ACTIONS[args.action](file, args)
    except ConfigError as error:
        raise refuse_config(error) from None
    return 0


def check_options(args: argparse.Namespace) -> None:
    action, taken = args.action, OPTIONS[args.action]
    if "name" in taken and args.name is None and action not in ("hash", "audit"):
        raise CommandError("whose key is it?", f"name the person or program: `toolwire keys {action} NAME`")
    for name in ("name", "write", "store", "console", "grace", *RIGHTS):
        if name not in taken and getattr(args, name) not in (None, False):
            option = "NAME" if name == "name" else f"--{name.replace('_', '-')}"
            users = ", ".join(f"`{action}`" for action, names in OPTIONS.items() if name in names)
            raise CommandError(f"`{action}` takes no {option}", f"it belongs to {users}")
    if action == "new" and args.write and args.store:
        raise CommandError("--write and --store exclude each other", "a key is in the file or in the store")
    if action == "new" and args.console:
        refused = next((name for name in ("store", *RIGHTS) if getattr(args, name) not in (None, False)), "")
        if refused:
            what = f"the key of the console takes no --{refused.replace('_', '-')}"
            raise CommandError(what, "it is in the file, it opens the console, and it is no client's key")
    if action == "limit" and all(getattr(args, name) is None for name in RIGHTS):
        raise CommandError(
            "what may the key do?", "use --models, --providers, --mcp-servers, --limits, --expires or --team"
        )


# --- new --------------------------------------------------------------------------------------------------------------


def make_client_key(file: KeyFile, args: argparse.Namespace) -> None:
    """The key and the lines for the file go to standard output, what they are for to standard error."""
    if args.console:
        make_console_key(file, args)
        return
    check_name(file, args.name)
    text = make_key()
    limits = LimitAmounts(**read_amounts(args.limits or ()))
    key = ClientKey(name=args.name, sha256=hash_key(text), limits=limits, **read_rights(args))
    if args.store:
        change_stored_key(file, args, key_edits.add_key(key))
    added = write_to_file(file, lambda: add_key(file, key, os.environ)) if args.write else None
    lines = write_key_table(key)
    if args.json:
        shown = {"name": key.name, "key": text, "sha256": key.sha256, "models": key.models, "lines": lines}
        sys.stdout.write(terminal.format_json({**shown, **describe_place(file, added), "stored": args.store}))
        return
    print_key(text, key.name)
    if args.store:
        _explain("Its hash is in the store; running gateways know it within seconds.")
    elif added is not None and file.data is None:
        _explain(f"Its hash is in {file.path}, a new file for a gateway that you start here.")
    else:
        explain_lines(file, lines, added)
    if not file.keys and not file.store_keys:
        _explain("It is the first key: with it, every client needs one.")
    _explain(f"Clients send it as their API key. For `toolwire run`: {CLIENT_KEY_VARIABLE}")


def make_console_key(file: KeyFile, args: argparse.Namespace) -> None:
    """The console has one key, for those who may see everything; the name is a remark in the file."""
    if not is_key_name(args.name):
        raise CommandError(NAME_RULE, "name who will have it: `toolwire keys new NAME --console`")
    text = make_key()
    lines = write_console_table(args.name, hash_key(text))
    added = write_to_file(file, lambda: add_console_key(file, lines, os.environ)) if args.write else None
    if args.json:
        shown = {"name": args.name, "key": text, "sha256": hash_key(text), "lines": lines}
        sys.stdout.write(terminal.format_json({**shown, **describe_place(file, added)}))
        return
    print_key(text, args.name)
    explain_lines(file, lines, added)
    _explain("Open the gateway's address in a browser and log in with it. It shows what all clients send and get.")


def print_key(text: str, name: str) -> None:
    _explain(f"The key of {name}, which is not shown again:")
    sys.stdout.write(f"{terminal.paint_text(text, 'ok')}\n")


def explain_lines(file: KeyFile, lines: str, added: AddedTable | None) -> None:
    if added is not None:
        _explain(f"Its hash is in {file.path}:{added.line}; a running gateway reads it at once.")
        return
    sys.stdout.write("\n")
    _explain(f"The lines for {file.path.name}; --write adds them:")
    sys.stdout.write(lines)


def describe_place(file: KeyFile, added: AddedTable | None) -> dict[str, object]:
    return {"file": str(file.path), "line": added.line} if added is not None else {"file": None, "line": None}


def check_name(file: KeyFile, name: str) -> None:
    if not is_key_name(name):
        raise CommandError(NAME_RULE, "name the person or program: `toolwire keys new NAME`")
    if is_glob(name):
        raise CommandError("the name of a key cannot have `*` or `?`", "rules and limits would take it for a pattern")
    found = file.find_name(name)
    if found is not None:
        raise CommandError(f"{file.path}:{found.line}: a key has the name `{name}` already", "choose another name")


def read_rights(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of a key that the options set."""
    for name in ("models", "providers", "mcp_servers"):
        check_patterns(f"--{name.replace('_', '-')}", getattr(args, name) or ())
    if args.team and not is_key_name(args.team):
        raise CommandError(TEAM_RULE, "name the team: --team app")
    rights = {name: getattr(args, name) for name in RIGHTS if name != "limits" and getattr(args, name) is not None}
    rights = {name: tuple(value) if isinstance(value, list) else value for name, value in rights.items()}
    return rights | ({"expires": read_expiry(args.expires)} if args.expires is not None else {})


def read_amounts(words: Sequence[str]) -> dict[str, Any]:
    """The amounts of --limits, checked. None removes one."""
    amounts: dict[str, Any] = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in AMOUNT_FIELDS:
            raise CommandError(f"--limits: unknown amount `{name}`", suggest_name(name, AMOUNT_FIELDS))
        try:
            value = None if text == "none" else msgspec.json.decode(text.replace("_", ""))
            amounts[name] = getattr(msgspec.convert({name: value}, LimitAmounts), name)
        except (msgspec.DecodeError, msgspec.ValidationError):
            raise CommandError(f"--limits: `{word}` is not an amount", f"write a number: --limits {name}=5") from None
    return amounts


def read_expiry(text: str) -> str:
    if text == NEVER:
        return ""
    duration = parse_duration(text)
    written = format_time(time.time() + duration) if duration is not None else text
    moment = parse_time(written)
    if moment is None:
        raise CommandError(f"--expires: `{text}` is not a time", f"{TIME_HINT}; or {DURATION_HINT}")
    if moment <= time.time():
        raise CommandError(f"--expires: `{text}` has passed", "to take a key away: `toolwire keys disable NAME`")
    return written


def check_patterns(option: str, patterns: Sequence[str]) -> None:
    for pattern in patterns:
        if not is_key_name(pattern) or "," in pattern:
            hint = f"write names and patterns with spaces between them: {option} fast 'claude-*'"
            raise CommandError(f"{option}: `{pattern}` is not a name or a pattern", hint)


def write_to_file(file: KeyFile, add: Callable[[], AddedTable]) -> AddedTable:
    """Add a key. A file that the user trusts, or that is new, stays trusted: nobody else has changed it."""
    try:
        added = add()
        if file.opened is None or is_trusted(file.path, file.opened.digest, os.environ):
            with suppress(OSError):  # the next command asks
                remember_trust(file.path, hash_text(added.text), os.environ)
        return added
    except OSError as error:
        hint = "without --write, the lines to add are printed"
        raise CommandError(f"cannot write {file.path}: {error.strerror}", hint, EXIT_CANNOT_WRITE) from None


def _explain(text: str) -> None:
    """A sentence on standard error. On a terminal both streams are one: keep their order."""
    sys.stdout.flush()
    lines = wrap_text(text, terminal.terminal_width(sys.stderr)) if sys.stderr.isatty() else [text]
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    sys.stderr.flush()


# --- hash -------------------------------------------------------------------------------------------------------------


def print_key_hash(args: argparse.Namespace) -> None:
    """Print the configuration that accepts a key which the client has already."""
    text = getpass.getpass("key: ") if sys.stdin.isatty() else terminal.read_input(None).decode("utf-8", "replace")
    text = text.strip()
    if not text:
        raise CommandError("the key is empty", 'pipe it in: `printf %s "$KEY" | toolwire keys hash`')
    if len(text) < MIN_KEY_LENGTH:
        sys.stderr.write(f"warning: a key of fewer than {MIN_KEY_LENGTH} characters can be guessed from its hash\n")
    key = ClientKey(name=args.name or "NAME", sha256=hash_key(text))
    if key.sha256 in guessable_hashes():
        raise CommandError("everybody would try this key first", f"`{NEW_KEY_COMMAND}` makes a random one")
    lines = write_key_table(key)
    document = {"name": key.name, "sha256": key.sha256, "lines": lines}
    sys.stdout.write(terminal.format_json(document) if args.json else lines)


# --- keys of the store ------------------------------------------------------------------------------------------------


def limit_key(file: KeyFile, args: argparse.Namespace) -> None:
    amounts = read_amounts(args.limits or ())
    key = change_stored_key(file, args, key_edits.change_fields(args.name, read_rights(args), amounts))
    rights = "; ".join(filter(None, (describe_rights(key), describe_state(key))))
    print_change(file, args, key, f"{key.name}: {rights}. Running gateways know it within seconds.")


def switch_key(file: KeyFile, args: argparse.Namespace) -> None:
    is_off = args.action == "disable"
    key = change_stored_key(file, args, key_edits.change_fields(args.name, {"disabled": is_off}))
    effect = "disabled; running gateways refuse" if is_off else "enabled; running gateways accept"
    print_change(file, args, key, f"{key.name} is {effect} it within seconds.")


def rotate_key(file: KeyFile, args: argparse.Namespace) -> None:
    grace = parse_duration(args.grace or DEFAULT_GRACE)
    if grace is None:
        raise CommandError(f"--grace: `{args.grace}` is not a duration", DURATION_HINT)
    text = make_key()
    edit = key_edits.rotate_key(args.name, hash_key(text), time.time(), grace)
    key = change_stored_key(file, args, edit)
    if args.json:
        sys.stdout.write(terminal.format_json({"name": key.name, "key": text, "old_until": key.old_until}))
        return
    print_key(text, key.name)
    old = f"The old key works until {key.old_until}." if key.old_until else "The old key is refused within seconds."
    _explain(f"Its hash is in the store; running gateways know it within seconds. {old}")


def print_change(file: KeyFile, args: argparse.Namespace, key: ClientKey, text: str) -> None:
    if args.json:
        sys.stdout.write(terminal.format_json(key_document(key, file)))
    else:
        _explain(text)


def change_stored_key(file: KeyFile, args: argparse.Namespace, edit: EditKey) -> ClientKey:
    found = file.find_name(args.name)
    if found is not None and args.action != "new":
        what = f"the key `{args.name}` is in {file.path}:{found.line}, not in the store"
        raise CommandError(what, "edit its lines there (disabled = true, expires, models …)")
    if not file.store_keys:
        what = "no gateway would use the keys of the store"
        raise CommandError(what, f"write `store_keys = true` in [server] of {file.path}")
    made = use_records(file, lambda records: records.change(find_author(), args.action, edit))
    if isinstance(made, KeyRefused):
        raise CommandError(made.message, made.hint)
    return require_up(made).key


def use_records(file: KeyFile, ask: Callable[[KeyRecords], Coroutine[Any, Any, Value]]) -> Value:
    """Ask the store that the configuration names."""
    missing = CommandError("there is no store: `url` in [store] is `none`", "remove `url`")
    settings = read_opened_config(file.opened, os.environ).store
    return use_store(settings, missing, lambda store: ask(KeyRecords(store)))


def find_author() -> str:
    """Who runs this command, for the audit log; with sudo, the user who called it."""
    try:
        user = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a container may have a user without a name
        user = f"uid {os.getuid()}" if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"


# --- list -------------------------------------------------------------------------------------------------------------


def list_keys(file: KeyFile, args: argparse.Namespace) -> None:
    rows: list[tuple[ClientKey, int | None]] = [(found.key, found.line) for found in file.keys]
    rows += [(key, None) for key in read_store_keys(file)] if file.store_keys else []
    if args.json:
        sys.stdout.write(terminal.format_json([key_document(key, file, line) for key, line in rows]))
    elif rows:
        header = ("name", "team", "may use", "state", "place", "hash")
        table = [header, *(key_row(key, STORE if line is None else f"{file.path}:{line}") for key, line in rows)]
        sys.stdout.write(terminal.format_table(table, ["head"], has_header=True))
    else:
        what = f"{file.path} has no client keys" if file.data is not None else "There is no configuration file"
        what = f"{what}, and the store has none" if file.store_keys else what
        _explain(f"{what}. To make a key: {NEW_STORED_KEY_COMMAND if file.store_keys else NEW_KEY_COMMAND}")


def read_store_keys(file: KeyFile) -> tuple[ClientKey, ...]:
    """The keys of the store. Those that gateways ignore are mentioned on standard error."""
    found = require_up(use_records(file, lambda records: records.load(None)))
    keys, problems = read_stored_keys(found.tables if found is not None else (), [one.key for one in file.keys])
    print_problems(problems, STORE)
    return keys


def key_row(key: ClientKey, place: str) -> tuple[str, ...]:
    return key.name, key.team, describe_rights(key), describe_state(key), place, f"{key.sha256[:SHOWN_HASH_DIGITS]}…"


def describe_rights(key: ClientKey) -> str:
    words = [", ".join(key.models) or "no models"]
    words += [f"of {', '.join(key.providers) or 'no provider'}"] if not key.has_all_providers else []
    words += [describe_amounts(key.limits)] if key.limits != LimitAmounts() else []
    words += [f"MCP: {', '.join(key.mcp_servers) or 'none'}"] if "*" not in key.mcp_servers else []
    return "; ".join(words) + (" and /metrics" if key.metrics else "")


def describe_state(key: ClientKey) -> str:
    now = time.time()
    states = ["disabled"] if key.disabled else []
    if key.expires:
        states.append(f"{'expired' if now >= key.expires_at else 'until'} {key.expires}")
    if key.old_until_at > now:
        states.append(f"old key until {key.old_until}")
    return "; ".join(states)


SHOWN_FIELDS = (
    "name", "team", "models", "providers", "mcp_servers", "expires", "disabled", "old_until", "metrics",
)  # fmt: skip


def key_document(key: ClientKey, file: KeyFile, line: int | None = None) -> dict[str, object]:
    return {
        **{name: getattr(key, name) for name in SHOWN_FIELDS},
        "limits": {name: amount for name, amount in asdict(key.limits).items() if amount is not None},
        "file": str(file.path) if line is not None else None,
        "line": line,
        "sha256_start": key.sha256[:SHOWN_HASH_DIGITS],
    }


# --- audit ------------------------------------------------------------------------------------------------------------


def show_changes(file: KeyFile, args: argparse.Namespace) -> None:
    changes = require_up(use_records(file, lambda records: records.list_changes(args.name)))
    if args.json:
        sys.stdout.write(terminal.format_json([change_document(change) for change in changes]))
    elif changes:
        rows = [("when", "who", "what", "key", "detail"), *(change_row(change) for change in changes)]
        sys.stdout.write(terminal.format_table(rows, ["head"], has_header=True))
    else:
        _explain(f"No change of {f'the key {args.name}' if args.name else 'a key'} is in the store.")


def change_row(change: KeyChange) -> tuple[str, ...]:
    return format_time(change.at), change.author, change.action, change.name, change.detail


def change_document(change: KeyChange) -> dict[str, object]:
    return {**asdict(change), "at": format_time(change.at)}


ACTIONS: dict[str, Callable[[KeyFile, argparse.Namespace], None]] = {
    "new": make_client_key,
    "list": list_keys,
    "limit": limit_key,
    "disable": switch_key,
    "enable": switch_key,
    "rotate": rotate_key,
    "audit": show_changes,
}
