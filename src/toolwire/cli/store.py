"""`toolwire store`: for operators, what is kept, what may go, and all of it as lines of JSON."""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from typing import BinaryIO, TypeVar, cast

import msgspec

from toolwire.cli import EXIT_BAD_INPUT, CommandError, terminal
from toolwire.cli.check_config import print_problems
from toolwire.gateway.config import config
from toolwire.gateway.config.load import load_config
from toolwire.gateway.config.problems import ConfigError, suggest_name
from toolwire.gateway.store import open_store
from toolwire.gateway.store.repository import owner_of
from toolwire.gateway.store.store import Entry, Store, StoreDown, StoreStats, SweepResult

EXIT_DOWN = 1
PROGRESS_STEP = 100
"""Entries after which progress is told again."""
Value = TypeVar("Value")


class StoreUnusable(Exception):
    """The store is down: exit code 1."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=ACTIONS, help="count what is kept, remove what may go, or write all of it down")
    parser.add_argument("file", nargs="?", metavar="FILE", help="where an export goes (default: standard output)")
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--json", action="store_true", help="as one JSON document; an export is always lines of JSON")
    parser.add_argument(
        "--owner", metavar="WHO", help="export only what this client key made: its name, its SHA-256, or an owner"
    )


def run(args: argparse.Namespace) -> int:
    if args.what != "export" and (args.file is not None or args.owner is not None):
        raise CommandError(f"`{args.what}` takes neither FILE nor --owner", "they are for `toolwire store export`")
    try:
        settings = load_config(args.config, os.environ)
    except ConfigError as problems:
        print_problems(problems.problems, problems.file)
        return EXIT_BAD_INPUT
    store = open_store(settings.store, os.environ)
    if store is None:
        raise CommandError("nothing is kept: `url` in [store] is `none`", "leave it out to keep things in a file")
    try:
        asyncio.run(_run_and_close(store, ACTIONS[args.what](store, settings, args)))
    except StoreUnusable as unusable:
        sys.stderr.write(f"error: {unusable}\nhint: `toolwire check-config` shows which store is configured\n")
        return EXIT_DOWN
    return 0


async def _run_and_close(store: Store, doing: Awaitable[None]) -> None:
    try:
        await doing
    finally:
        await store.close()


def require_up(got: Value | StoreDown) -> Value:
    if isinstance(got, StoreDown):
        raise StoreUnusable(got.reason)
    return got


def print_json(value: msgspec.Struct) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


# --- stats ----------------------------------------------------------------------------------------------------------


async def print_stats(store: Store, _: config.Config, args: argparse.Namespace) -> None:
    found: StoreStats = require_up(await store.stats())
    if args.json:
        print_json(found)
        return
    entries = sum(kind.entries for kind in found.kinds)
    oldest = f", the oldest from {format_time(found.oldest)}" if found.oldest is not None else ""
    limit = f" of at most {format_size(found.limit)}" if found.limit else ""
    expired = " (`toolwire store gc` removes them)" if found.expired else ""
    head = [
        ("store", f"{found.where}, tables of version {found.version}"),
        ("size", f"{format_size(found.size)}{limit}"),
        ("kept", f"{entries:,} entries of {found.owners:,} {'owner' if found.owners == 1 else 'owners'}{oldest}"),
        ("expired", f"{found.expired:,}{expired}"),
        ("encrypted", "yes" if found.encrypted else "no"),
    ]
    sys.stdout.write(terminal.format_table(head))
    if found.kinds:
        sys.stdout.write(terminal.paint_text("kinds\n", "head", sys.stdout))
        counts = [(f"  {kind.kind}", f"{kind.entries:,}", format_size(kind.bytes)) for kind in found.kinds]
        width = max(len(count) for _, count, _ in counts)
        sys.stdout.write(terminal.format_table((kind, count.rjust(width), size) for kind, count, size in counts))


def format_size(size: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:,.{0 if units[0] == 'bytes' else 1}f} {units[0]}"


def format_time(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"


# --- gc -------------------------------------------------------------------------------------------------------------


async def sweep_store(store: Store, _: config.Config, args: argparse.Namespace) -> None:
    swept: SweepResult = require_up(await store.sweep())
    if args.json:
        print_json(swept)
        return
    sys.stdout.write(terminal.format_table([("expired", f"{swept.expired:,}"), ("too much", f"{swept.crowded:,}")]))


# --- export ---------------------------------------------------------------------------------------------------------


async def export_entries(store: Store, settings: config.Config, args: argparse.Namespace) -> None:
    names = {owner_of(key): key.name for key in settings.server.keys}
    whose = None if args.owner is None else find_owner(args.owner, names, settings)
    told, back = sys.stderr.isatty(), "\r"
    count = 0
    with open_output(args.file) as out:
        # A reader that goes away must not leave the store in the middle of it.
        async with aclosing(cast("AsyncGenerator[Entry | StoreDown, None]", store.export(whose))) as entries:
            async for entry in entries:
                out.write(entry_line(require_up(entry), names))
                count += 1
                if told and count % PROGRESS_STEP == 0:
                    sys.stderr.write(f"{back}{count:,} entries")
    if told or args.file:
        sys.stderr.write(f"{back if told else ''}{count:,} entries\n")


def find_owner(who: str, names: Mapping[str, str], settings: config.Config) -> str:
    """Whose entries are meant: by the name of a key, by its hash, or as the store calls it."""
    for key in settings.server.keys:
        if who in (key.name, key.sha256):
            return owner_of(key)
    if who and not re.fullmatch("[0-9a-f]+", who):
        hint = suggest_name(who, names.values()) or "without [[server.keys]] everything belongs to the owner ''"
        raise CommandError(f"no client key is called {who!r}", hint)
    return who


def entry_line(entry: Entry, names: Mapping[str, str]) -> bytes:
    """One entry; its body as JSON where it is JSON."""
    told: dict[str, object] = {"owner": entry.owner}
    if entry.owner in names:
        told["key"] = names[entry.owner]
    told |= {
        "kind": entry.kind,
        "id": printable_id(entry.id),
        "parent": printable_id(entry.parent),
        "place": entry.place,
    }
    told |= {"mark": entry.mark, "created": entry.created, "expires": entry.expires}
    try:
        msgspec.json.decode(entry.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told["body_base64"] = base64.b64encode(entry.body).decode()
    else:
        told["body"] = msgspec.Raw(msgspec.json.format(entry.body, indent=-1))
    return msgspec.json.encode(told) + b"\n"


def printable_id(id: str) -> str:
    """Clients choose ids, and some are no Unicode."""
    return id.encode("utf-8", "replace").decode()


@contextmanager
def open_output(name: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is there only when it is complete, and only for whoever exports."""
    if name is None or name == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = f"{name}.part"
    try:
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            yield file
        os.replace(part, name)
    except OSError as error:
        raise CommandError(f"cannot write {name}: {error.strerror}", "check the path") from None
    finally:
        with suppress(OSError):
            os.unlink(part)


ACTIONS: dict[str, Callable[[Store, config.Config, argparse.Namespace], Awaitable[None]]] = {
    "stats": print_stats,
    "gc": sweep_store,
    "export": export_entries,
}
