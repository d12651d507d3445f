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

from toolwire.cli import BAD_INPUT, Complaint, screen
from toolwire.cli.check_config import complain
from toolwire.gateway.access import Visitor
from toolwire.gateway.settings import config
from toolwire.gateway.settings.configfile import load
from toolwire.gateway.settings.problems import Problems, meant
from toolwire.gateway.state.book import owner_of
from toolwire.gateway.store.opening import opened
from toolwire.gateway.store.record import Down, Entry, Stats, Store, Swept

IS_DOWN = 1
FEW = 100
"""Entries after which progress is told again."""
Got = TypeVar("Got")


class Unusable(Exception):
    """The store is down: exit code 1."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=DOINGS, help="count what is kept, remove what may go, or write all of it down")
    parser.add_argument("file", nargs="?", metavar="FILE", help="where an export goes (default: standard output)")
    parser.add_argument("--config", metavar="FILE", help="the file (default: $TOOLWIRE_CONFIG, ./toolwire.toml, …)")
    parser.add_argument("--json", action="store_true", help="as one JSON document; an export is always lines of JSON")
    parser.add_argument(
        "--owner", metavar="WHO", help="export only what this client key made: its name, its SHA-256, or an owner"
    )


def run(chosen: argparse.Namespace) -> int:
    if chosen.what != "export" and (chosen.file is not None or chosen.owner is not None):
        raise Complaint(f"`{chosen.what}` takes neither FILE nor --owner", "they are for `toolwire store export`")
    try:
        settings = load(chosen.config, os.environ)
    except Problems as problems:
        complain(problems.found, problems.file)
        return BAD_INPUT
    store = opened(settings.store, os.environ)
    if store is None:
        raise Complaint("nothing is kept: `url` in [store] is `none`", "leave it out to keep things in a file")
    try:
        asyncio.run(_closed_after(store, DOINGS[chosen.what](store, settings, chosen)))
    except Unusable as unusable:
        sys.stderr.write(f"error: {unusable}\nhint: `toolwire check-config` shows which store is configured\n")
        return IS_DOWN
    return 0


async def _closed_after(store: Store, doing: Awaitable[None]) -> None:
    try:
        await doing
    finally:
        await store.close()


def up(got: Got | Down) -> Got:
    if isinstance(got, Down):
        raise Unusable(got.what)
    return got


def document(value: msgspec.Struct) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


# --- stats ----------------------------------------------------------------------------------------------------------


async def stats(store: Store, _: config.Config, chosen: argparse.Namespace) -> None:
    found: Stats = up(await store.stats())
    if chosen.json:
        document(found)
        return
    entries = sum(kind.entries for kind in found.kinds)
    oldest = f", the oldest from {moment(found.oldest)}" if found.oldest is not None else ""
    limit = f" of at most {amount(found.limit)}" if found.limit else ""
    expired = " (`toolwire store gc` removes them)" if found.expired else ""
    head = [
        ("store", f"{found.where}, tables of version {found.version}"),
        ("size", f"{amount(found.size)}{limit}"),
        ("kept", f"{entries:,} entries of {found.owners:,} {'owner' if found.owners == 1 else 'owners'}{oldest}"),
        ("expired", f"{found.expired:,}{expired}"),
        ("encrypted", "yes" if found.encrypted else "no"),
    ]
    sys.stdout.write(screen.table(head))
    if found.kinds:
        sys.stdout.write(screen.paint("kinds\n", "head", sys.stdout))
        counts = [(f"  {kind.kind}", f"{kind.entries:,}", amount(kind.bytes)) for kind in found.kinds]
        width = max(len(count) for _, count, _ in counts)
        sys.stdout.write(screen.table((kind, count.rjust(width), size) for kind, count, size in counts))


def amount(size: float) -> str:
    units = ["bytes", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:,.{0 if units[0] == 'bytes' else 1}f} {units[0]}"


def moment(time: float) -> str:
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"


# --- gc -------------------------------------------------------------------------------------------------------------


async def gc(store: Store, _: config.Config, chosen: argparse.Namespace) -> None:
    swept: Swept = up(await store.sweep())
    if chosen.json:
        document(swept)
        return
    sys.stdout.write(screen.table([("expired", f"{swept.expired:,}"), ("too much", f"{swept.crowded:,}")]))


# --- export ---------------------------------------------------------------------------------------------------------


async def export(store: Store, settings: config.Config, chosen: argparse.Namespace) -> None:
    names = {owner_of(Visitor(key=key)): key.name for key in settings.server.keys}
    whose = None if chosen.owner is None else owner(chosen.owner, names, settings)
    told, back = sys.stderr.isatty(), "\r"
    count = 0
    with target(chosen.file) as out:
        # A reader that goes away must not leave the store in the middle of it.
        async with aclosing(cast("AsyncGenerator[Entry | Down, None]", store.export(whose))) as entries:
            async for entry in entries:
                out.write(line(up(entry), names))
                count += 1
                if told and count % FEW == 0:
                    sys.stderr.write(f"{back}{count:,} entries")
    if told or chosen.file:
        sys.stderr.write(f"{back if told else ''}{count:,} entries\n")


def owner(who: str, names: Mapping[str, str], settings: config.Config) -> str:
    """Whose entries are meant: by the name of a key, by its hash, or as the store calls it."""
    for key in settings.server.keys:
        if who in (key.name, key.sha256):
            return owner_of(Visitor(key=key))
    if who and not re.fullmatch("[0-9a-f]+", who):
        hint = meant(who, names.values()) or "without [[server.keys]] everything belongs to the owner ''"
        raise Complaint(f"no client key is called {who!r}", hint)
    return who


def line(entry: Entry, names: Mapping[str, str]) -> bytes:
    """One entry; its body as JSON where it is JSON."""
    told: dict[str, object] = {"owner": entry.owner}
    if entry.owner in names:
        told["key"] = names[entry.owner]
    told |= {"kind": entry.kind, "id": plain(entry.id), "parent": plain(entry.parent), "place": entry.place}
    told |= {"mark": entry.mark, "created": entry.created, "expires": entry.expires}
    try:
        msgspec.json.decode(entry.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told["body_base64"] = base64.b64encode(entry.body).decode()
    else:
        told["body"] = msgspec.Raw(msgspec.json.format(entry.body, indent=-1))
    return msgspec.json.encode(told) + b"\n"


def plain(id: str) -> str:
    """Clients choose ids, and some are no Unicode."""
    return id.encode("utf-8", "replace").decode()


@contextmanager
def target(name: str | None) -> Iterator[BinaryIO]:
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
        raise Complaint(f"cannot write {name}: {error.strerror}", "check the path") from None
    finally:
        with suppress(OSError):
            os.unlink(part)


DOINGS: dict[str, Callable[[Store, config.Config, argparse.Namespace], Awaitable[None]]] = {
    "stats": stats,
    "gc": gc,
    "export": export,
}
