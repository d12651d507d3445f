"""`toolwire store`: for operators: count what is stored, remove what has expired, or export it as JSON lines.
Keys and costs have tables of their own there, so it is above these features."""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO, cast

import msgspec

from toolwire import terminal
from toolwire.cli.config import read_all_keys
from toolwire.gateway.features.costs.ledger import sweep_ledger
from toolwire.gateway.features.costs.ledger_tables import open_ledger
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.settings.config import ClientKey, Config
from toolwire.gateway.settings.problems import suggest_name
from toolwire.gateway.store.command_store import require_up, use_store
from toolwire.gateway.store.repository import owner_of
from toolwire.gateway.store.store import Entry, Store, StoreDown, StoreStats, SweepResult
from toolwire.terminal import CommandError

PROGRESS_STEP = 100
"""Exported entries between two updates of the progress line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    actions = "count the entries, remove expired and surplus ones, or export all of them"
    add("action", choices=ACTIONS, help=actions)
    add("file", nargs="?", metavar="FILE", help="file to export to (default: standard output)")
    add("--json", action="store_true", help="print one JSON document; an export is always JSON lines")
    owner = "export only the entries of this client key: its name, its SHA-256 or its owner id"
    add("--owner", metavar="KEY", help=owner)


def run(args: argparse.Namespace, config: Config) -> int:
    if args.action != "export" and (args.file is not None or args.owner is not None):
        raise CommandError(f"`{args.action}` takes neither FILE nor --owner", "use them with `toolwire store export`")
    missing = CommandError("nothing is stored: `url` in [store] is `none`", "remove `url` to store entries in a file")
    use_store(config.store, missing, lambda store: ACTIONS[args.action](store, config, args))
    return 0


# --- stats ----------------------------------------------------------------------------------------------------------


async def print_stats(store: Store, _: Config, args: argparse.Namespace) -> None:
    stats: StoreStats = require_up(await store.stats())
    if args.json:
        sys.stdout.write(terminal.format_json(stats))
        return
    entries = sum(kind.entries for kind in stats.kinds)
    oldest = ""
    if stats.oldest is not None:
        oldest = f", the oldest from {datetime.fromtimestamp(stats.oldest, UTC):%Y-%m-%d %H:%M} UTC"
    limit = f" of at most {format_size(stats.limit)}" if stats.limit else ""
    expired = " (`toolwire store gc` removes them)" if stats.expired else ""
    rows = [
        ("store", f"{stats.where}, schema version {stats.version}"),
        ("size", f"{format_size(stats.size)}{limit}"),
        ("entries", f"{entries:,} of {stats.owners:,} {'owner' if stats.owners == 1 else 'owners'}{oldest}"),
        ("expired", f"{stats.expired:,}{expired}"),
        ("encrypted", "yes" if stats.encrypted else "no"),
    ]
    sys.stdout.write(terminal.format_table(rows))
    if stats.kinds:
        sys.stdout.write(terminal.heading("kinds"))
        counts = [(f"  {kind.kind}", f"{kind.entries:,}", format_size(kind.bytes)) for kind in stats.kinds]
        sys.stdout.write(terminal.format_table(terminal.align_right(counts, 1)))


def format_size(size: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:,.{0 if units[0] == 'bytes' else 1}f} {units[0]}"


# --- gc -------------------------------------------------------------------------------------------------------------


async def sweep_store(store: Store, config: Config, args: argparse.Namespace) -> None:
    removed = require_up(await sweep_ledger(open_ledger(store), config.section(CostSettings), config.store))
    swept: SweepResult = require_up(await store.sweep())
    rows = [
        ("expired", f"{swept.expired:,}"),
        ("over the limit", f"{swept.crowded:,}"),
        ("old rows of the ledger", f"{removed:,}"),
    ]
    document = {"expired": swept.expired, "crowded": swept.crowded, "ledger_rows": removed}
    sys.stdout.write(terminal.format_json(document) if args.json else terminal.format_table(rows))


# --- export ---------------------------------------------------------------------------------------------------------


async def export_entries(store: Store, config: Config, args: argparse.Namespace) -> None:
    keys = await read_all_keys(store, config)
    names = {owner_of(key): key.name for key in keys}
    owner = None if args.owner is None else find_owner(args.owner, names, keys)
    shows_progress = sys.stderr.isatty()
    count = 0
    with open_output(args.file) as out:
        # Close the query even if the reader of our output goes away.
        async with aclosing(cast("AsyncGenerator[Entry | StoreDown, None]", store.export(owner))) as entries:
            async for entry in entries:
                out.write(entry_line(require_up(entry), names))
                count += 1
                if shows_progress and count % PROGRESS_STEP == 0:
                    sys.stderr.write(f"\r{count:,} entries")
    if shows_progress or args.file:
        sys.stderr.write(("\r" if shows_progress else "") + f"{count:,} entries\n")


def find_owner(key_text: str, names: Mapping[str, str], keys: Sequence[ClientKey]) -> str:
    """The owner id of a client key, given by its name, its hash or the owner id itself."""
    for key in keys:
        if key_text in (key.name, key.sha256):
            return owner_of(key)
    if key_text and not re.fullmatch("[0-9a-f]+", key_text):
        hint = suggest_name(key_text, names.values()) or "without [[server.keys]] everything belongs to the owner ''"
        raise CommandError(f"unknown client key `{key_text}`", hint)
    return key_text


def entry_line(entry: Entry, names: Mapping[str, str]) -> bytes:
    """One entry as a line; its body as JSON if it is JSON."""
    line: dict[str, object] = {"owner": entry.owner}
    if entry.owner in names:
        line["key"] = names[entry.owner]
    line |= {"kind": entry.kind, "id": printable_id(entry.id), "parent": printable_id(entry.parent)}
    line |= {"place": entry.place, "mark": entry.mark, "created": entry.created, "expires": entry.expires}
    try:
        msgspec.json.decode(entry.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        line["body_base64"] = base64.b64encode(entry.body).decode()
    else:
        line["body"] = msgspec.Raw(msgspec.json.format(entry.body, indent=-1))
    return msgspec.json.encode(line) + b"\n"


def printable_id(id: str) -> str:
    """Clients choose ids, and some are not valid Unicode."""
    return id.encode("utf-8", "replace").decode()


@contextmanager
def open_output(name: str | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that only its owner can read and that appears when it is complete."""
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


ACTIONS: dict[str, Callable[[Store, Config, argparse.Namespace], Coroutine[Any, Any, None]]] = {
    "stats": print_stats,
    "gc": sweep_store,
    "export": export_entries,
}
