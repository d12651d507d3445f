"""A process that writes into a store in a file, and says each thing that it was told is kept.

usage: store_writer.py FILE NAME COUNT        0 writes until somebody ends it
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path

from toolwire.gateway.store.sqlite import SqliteStore
from toolwire.gateway.store.store import Entry

WRITERS = 4


def body(id: str) -> bytes:
    """What belongs to an id; some are so large that they take many pages."""
    return id.encode() * (1 + 4000 * (len(id) % 3))


async def write(store: SqliteStore, name: str, numbers: Iterator[int]) -> None:
    for number in numbers:
        id = f"{name}{'-' * (number % 3)}{number}"
        pair = [Entry(owner="", kind=kind, id=id, body=body(id)) for kind in ("one", "two")]
        assert await store.put(pair) is True
        assert await store.put(appended=[Entry(owner="", kind="item", id=id, parent="c", body=b"%d" % number)]) is True
        sys.stdout.write(f"{id}\n")
        sys.stdout.flush()


async def main(file: str, name: str, count: str) -> None:
    store = SqliteStore(Path(file))
    numbers = iter(range(int(count))) if int(count) else itertools.count()
    await asyncio.gather(*(write(store, name, numbers) for _ in range(WRITERS)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
