"""Answers that are made in the background: asked for now, fetched later, by whoever the gateway's clients come back to.

What a job has made so far is kept piece by piece, with a promise to tell more soon (its lease). Any gateway can show
it, and can cancel it: whoever runs it sees that when it keeps the next piece. A job whose lease has run out has lost
its gateway, and is told as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine

from msgspec.structs import replace

from toolwire.gateway.state.book import EVENTS, LIVING, RESPONSE, Book, Kept, read_kept, written
from toolwire.gateway.state.keeper import Keeper
from toolwire.gateway.store.record import Down, Entry
from toolwire.ir import Failure
from toolwire.keeping import Keeping
from toolwire.wire import Object

LOST = Failure("server", "the gateway that made this answer went away before it was done", 500, "server_error")
LOOK = 0.25
"""Seconds between two looks at what another gateway makes."""
Frame = tuple[int, bytes]
Work = Coroutine[object, object, None]


class Job:
    """One answer under way here."""

    def __init__(self, book: Book, keeper: Keeper, queued: Object, running: Object) -> None:
        self.id = keeper.keeping.name(queued)
        self.frames: list[Frame] = []
        self.response = queued
        self._running = running
        self.done = False
        self._book = book
        self._keeper = keeper
        self._kept = 0
        self._more = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self, work: Work) -> asyncio.Task[None]:
        self.task = asyncio.get_running_loop().create_task(work)
        return self.task

    async def running(self) -> bool | Down:
        """Its provider has begun to answer."""
        return await self.keep(self._running)

    async def abandon(self) -> None:
        """It will not be done any more: say so at once, not when its lease runs out."""
        await self.keep(self._keeper.keeping.ended(self.response, "failed", LOST), told=False)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def entry(self, response: Object, told: bool = True) -> Entry:
        """The answer as far as it is, with the promise to tell more."""
        book, keeper = self._book, self._keeper
        now = book.clock()
        status = keeper.keeping.status(response)
        living = status in LIVING
        lease = now + book.lease if living else 0.0
        kept = Kept(
            items=keeper.items,
            response=response,
            conversation=keeper.wants.conversation,
            background=True,
            lease=lease,
            told=told and not living,
        )
        return Entry(
            owner=keeper.owner,
            kind=RESPONSE,
            id=self.id,
            parent=keeper.wants.previous,
            mark=status,
            body=written(kept),
            created=now,
        )

    def add(self, data: bytes) -> None:
        """More of its stream, in whole frames."""
        self.frames += self._keeper.keeping.numbered(data)
        self._wake()

    async def keep(self, response: Object | None = None, told: bool = True) -> bool | Down:
        """Keep what there is; False when somebody cancelled it meanwhile."""
        new = self.frames[self._kept :]
        now = response if response is not None else self.response
        entries = [self.entry(now, told)]
        if new:
            body = b"".join(frame for _, frame in new)
            owner, place = self._keeper.owner, new[-1][0] + 1
            entries.append(
                Entry(owner=owner, kind=EVENTS, id=f"{self.id}/{place}", parent=self.id, place=place, body=body)
            )
        got = await self._book.put(*entries, where=LIVING)
        if got is True:
            self._kept += len(new)
            self.response = now
        return got

    def finish(self) -> None:
        self.done = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def following(self, after: int) -> AsyncIterator[bytes]:
        """Its frames from behind this number, those to come as well."""
        position = 0
        while True:
            while position < len(self.frames):
                number, frame = self.frames[position]
                position += 1
                if number > after:
                    yield frame
            if self.done:
                return
            await self._more.wait()


class Jobs:
    """All jobs of this gateway."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._running: dict[tuple[str, str], Job] = {}

    def get(self, owner: str, id: str) -> Job | None:
        return self._running.get((owner, id))

    def run(self, owner: str, job: Job, work: Work, broken: Callable[[BaseException], Work]) -> None:
        """Run it to its end; where our own code breaks, `broken` says what is to be done then."""
        self._running[owner, job.id] = job
        loop = asyncio.get_running_loop()
        promise = loop.create_task(self._promise(job))

        def closed(_task: asyncio.Task[None]) -> None:
            promise.cancel()
            job.finish()
            self._running.pop((owner, job.id), None)

        def over(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is None:
                closed(task)
            else:
                job.start(broken(error)).add_done_callback(closed)

        job.start(work).add_done_callback(over)

    async def _promise(self, job: Job) -> None:
        """Renew the lease, and notice when it was cancelled elsewhere."""
        while True:
            await asyncio.sleep(self._book.lease / 3)
            if await job.keep() is False:
                job.cancel()
                return

    async def close(self, seconds: float | None) -> None:
        """Until the last has ended: they are as good as any stream under way. What takes longer has failed."""
        jobs = list(self._running.values())
        tasks = {job.task for job in jobs if job.task is not None}
        _, late = await asyncio.wait(tasks, timeout=seconds) if tasks else (set(), set())
        for job in jobs:
            if job.task in late:
                await job.abandon()
                job.cancel()


async def looked_after(book: Book, keeping: Keeping, entry: Entry) -> Entry | Down:
    """An answer as it is now: one that lost its gateway has failed."""
    kept = read_kept(entry)
    if entry.mark not in LIVING or kept.lease >= book.clock():
        return entry
    return await ended(book, keeping, entry, "failed", LOST)


async def ended(book: Book, keeping: Keeping, entry: Entry, status: str, why: Failure | None) -> Entry | Down:
    """An answer that will not come any more. Where another gateway was quicker, what that one said holds."""
    kept = read_kept(entry)
    response = keeping.ended(kept.response, status, why)
    over = Entry(
        owner=entry.owner,
        kind=RESPONSE,
        id=entry.id,
        parent=entry.parent,
        mark=status,
        created=entry.created,
        body=written(replace(kept, response=response, lease=0.0)),
    )
    got = await book.put(over, where=LIVING)
    if isinstance(got, Down):
        return got
    if got:
        return over
    now = await book.one(entry.owner, RESPONSE, entry.id)
    return now if now is not None else over


def untold(keeping: Keeping, entry: Entry, number: int) -> bytes:
    """The last event of an answer that was cancelled or lost: nobody was left to tell it in its stream."""
    kept = read_kept(entry)
    return b"" if kept.told else keeping.last(kept.response, number)


async def elsewhere(
    book: Book, keeping: Keeping, entry: Entry, after: int, wait: Callable[[float], Coroutine[object, object, None]]
) -> AsyncIterator[bytes]:
    """The frames of an answer that another gateway makes, as it keeps them."""
    last = -1
    while True:
        now = await book.one(entry.owner, RESPONSE, entry.id)
        if now is None or isinstance(now, Down):
            return
        state = await looked_after(book, keeping, now)
        pieces = await book.children(entry.owner, EVENTS, entry.id, last if last >= 0 else None)
        if isinstance(pieces, Down) or isinstance(state, Down):
            return
        for piece in pieces:
            last = piece.place
            for number, frame in keeping.numbered(piece.body):
                if number > after:
                    yield frame
        if state.mark not in LIVING:
            yield untold(keeping, state, max(last, after + 1))
            return
        await wait(LOOK)
