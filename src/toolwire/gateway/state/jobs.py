"""Answers that are made in the background: asked for now, fetched later, by whoever the gateway's clients come back to.

What a job has made so far is kept piece by piece, with a promise to tell more soon (its lease). Any gateway can show
it, and can cancel it: whoever runs it sees that when it keeps the next piece. A job whose lease has run out has lost
its gateway, and is told as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress

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


class Interrupted(Exception):
    """A stream that cannot be told further now. Whoever reads it must see that it is not whole, and may come back."""


class Job:
    """One answer under way here."""

    def __init__(self, book: Book, keeper: Keeper, queued: Object, running: Object) -> None:
        self.id = keeper.keeping.name(queued)
        self.frames: list[Frame] = keeper.keeping.renumbered(keeper.keeping.frames(queued), 0)
        """Its stream so far. It begins at once: who reads it knows its id from then on."""
        self.response = queued
        self._running = running
        self.done = False
        self.told = False
        """Is its end among the frames?"""
        self._book = book
        self._keeper = keeper
        self._kept = 0
        self._over = False
        """Is its end kept?"""
        self._keeping = asyncio.Lock()
        self._more = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self, work: Work) -> asyncio.Task[None]:
        self.task = asyncio.get_running_loop().create_task(work)
        return self.task

    @property
    def next(self) -> int:
        """The number of its next frame."""
        return self.frames[-1][0] + 1 if self.frames else 0

    async def begin(self) -> bool | Down:
        """Keep it as one that waits."""
        new = self._entries(self.response, self.frames, told=False)
        got = await self._book.put(*new)
        self._kept = len(self.frames)
        return got

    async def running(self) -> bool | Down:
        """Its provider has begun to answer."""
        return await self.keep(self._running)

    async def abandon(self) -> None:
        """It will not be done any more: say so at once, not when its lease runs out."""
        async with self._keeping:
            await self._put(self._keeper.keeping.ended(self.response, "failed", LOST), [], told=False)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def _entries(self, response: Object, frames: list[Frame], told: bool) -> list[Entry]:
        """The answer as far as it is, with the promise to tell more; and more of its stream."""
        book, keeper = self._book, self._keeper
        now = book.clock()
        status = keeper.keeping.status(response)
        kept = Kept(
            items=keeper.items,
            response=response,
            conversation=keeper.wants.conversation,
            background=True,
            lease=now + book.lease if status in LIVING else 0.0,
            told=told,
        )
        owner, parent = keeper.owner, keeper.wants.previous
        body = written(kept)
        entries = [Entry(owner=owner, kind=RESPONSE, id=self.id, parent=parent, mark=status, body=body, created=now)]
        if frames:
            body, place = b"".join(frame for _, frame in frames), frames[-1][0] + 1
            name = f"{self.id}/{place}"
            entries.append(Entry(owner=owner, kind=EVENTS, id=name, parent=self.id, place=place, body=body))
        return entries

    def add(self, data: bytes) -> None:
        """More of its stream, in whole frames."""
        self.frames += self._keeper.keeping.renumbered(data, self.next)
        self._wake()

    async def keep(self, response: Object | None = None) -> bool | Down:
        """Keep what there is; False when somebody cancelled it meanwhile. One at a time: each keeps what the one before
        has left."""
        async with self._keeping:
            now = response if response is not None else self.response
            return True if self._over else await self._put(now, self.frames, told=False)

    async def end(
        self, response: Object, data: bytes, pointers: Sequence[Entry] = (), turn: Sequence[Entry] = ()
    ) -> bool | Down:
        """Keep its end, with the last of its stream: nobody is told of it before."""
        async with self._keeping:
            frames = [*self.frames, *self._keeper.keeping.renumbered(data, self.next)]
            got = await self._put(response, frames, True, pointers, turn)
            if got is True:
                self._tell_end(frames)
            return got

    def give_up(self, data: bytes) -> None:
        """Its end cannot be kept: those who follow it are told all the same."""
        self._tell_end([*self.frames, *self._keeper.keeping.renumbered(data, self.next)])

    def _tell_end(self, frames: list[Frame]) -> None:
        self.frames, self.told = frames, True
        self._wake()

    async def _put(
        self,
        response: Object,
        frames: list[Frame],
        told: bool,
        pointers: Sequence[Entry] = (),
        turn: Sequence[Entry] = (),
    ) -> bool | Down:
        entries = self._entries(response, frames[self._kept :], told)
        got = await self._book.put(*entries, *pointers, where=LIVING, behind=turn)
        if got is True:
            self._kept = max(self._kept, len(frames))
            self.response = response
            self._over = self._keeper.keeping.status(response) not in LIVING
        return got

    def finish(self) -> None:
        self.done = True
        self._wake()

    def _wake(self) -> None:
        self._more.set()
        self._more = asyncio.Event()

    async def followed(self, after: int) -> AsyncIterator[bytes]:
        """Its frames from behind this number, those to come as well, up to its end: also when it was cancelled."""
        async for frame in self._following(after):
            yield frame
        if self.told:
            return
        keeping = self._keeper.keeping
        now = await self._book.one(self._keeper.owner, RESPONSE, self.id)
        if isinstance(now, Down) or (now is not None and now.mark in LIVING):
            raise Interrupted
        ended = read_kept(now).response if now is not None else keeping.ended(self.response, "cancelled", None)
        yield keeping.last(ended, self.next)

    async def _following(self, after: int) -> AsyncIterator[bytes]:
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
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._running:
                    await asyncio.wait(self._tasks())
                    await asyncio.sleep(0)  # what is to be done behind a task has its turn
        late = list(self._running.values())
        await asyncio.gather(*(job.abandon() for job in late))
        for job in late:
            job.cancel()
        if self._running:
            await asyncio.wait(self._tasks())

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {job.task for job in self._running.values() if job.task is not None}


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
    last, seen = -1, after
    while True:
        now = await book.one(entry.owner, RESPONSE, entry.id)
        if now is None:
            yield keeping.last(keeping.ended(read_kept(entry).response, "cancelled", None), max(last, seen + 1))
            return
        state = now if isinstance(now, Down) else await looked_after(book, keeping, now)
        pieces = await book.children(entry.owner, EVENTS, entry.id, last if last >= 0 else None)
        if isinstance(pieces, Down) or isinstance(state, Down):
            raise Interrupted
        for piece in pieces:
            last = piece.place
            # A piece may repeat what stands in the one before: whoever kept it was not told that it was kept.
            new = [(number, frame) for number, frame in keeping.numbered(piece.body) if number > seen]
            for number, frame in new:
                seen = number
                yield frame
        if state.mark not in LIVING:
            yield untold(keeping, state, max(last, seen + 1))
            return
        await wait(LOOK)
