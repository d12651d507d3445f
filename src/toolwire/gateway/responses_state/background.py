"""Answers that are made in the background: asked for now, fetched later, by whoever the gateway's clients come back to.

What a job has made so far is kept piece by piece, with a promise to tell more soon (its lease). Any gateway can show
it, and can cancel it: whoever runs it sees that when it keeps the next piece. A job whose lease has run out has lost
its gateway, and is told as failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress

from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.core.json_values import Object
from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, StartedStream
from toolwire.gateway.pipeline.route import Target
from toolwire.gateway.responses_state.pipeline_interface import Pipeline
from toolwire.gateway.responses_state.recorder import StoringRecorder
from toolwire.gateway.responses_state.repository import (
    EVENTS,
    RESPONSE,
    UNFINISHED_STATUSES,
    StateRepository,
    StoredResponse,
    encode_record,
    read_stored_response,
)
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.keeping import Keeping, Tap

JOB_LOST = Failure("server", "the gateway that made this answer went away before it was done", 500, "server_error")
POLL_SECONDS = 0.25
"""Seconds between two looks at what another gateway makes."""
NumberedFrame = tuple[int, bytes]
JobCoroutine = Coroutine[object, object, None]


class StreamInterrupted(Exception):
    """A stream that cannot be told further now. Whoever reads it must see that it is not whole, and may come back."""


class BackgroundJob:
    """One answer under way here."""

    def __init__(self, repository: StateRepository, recorder: StoringRecorder, queued: Object, running: Object) -> None:
        self.id = recorder.keeping.name(queued)
        self.frames: list[NumberedFrame] = recorder.keeping.renumbered(recorder.keeping.frames(queued), 0)
        """Its stream so far. It begins at once: who reads it knows its id from then on."""
        self.response = queued
        self._running_response = running
        self.is_done = False
        self.end_is_sent = False
        """Is its end among the frames?"""
        self._repository = repository
        self._recorder = recorder
        self._stored_frames = 0
        self._end_is_stored = False
        """Is its end kept?"""
        self._store_lock = asyncio.Lock()
        self._new_frames = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def start(self, work: JobCoroutine) -> asyncio.Task[None]:
        self.task = asyncio.get_running_loop().create_task(work)
        return self.task

    @property
    def next_number(self) -> int:
        """The number of its next frame."""
        return self.frames[-1][0] + 1 if self.frames else 0

    async def store_queued(self) -> bool | StoreDown:
        """Keep it as one that waits."""
        new = self._build_entries(self.response, self.frames, end_included=False)
        got = await self._repository.put(*new)
        self._stored_frames = len(self.frames)
        return got

    async def store_running(self) -> bool | StoreDown:
        """Its provider has begun to answer."""
        return await self.store_progress(self._running_response)

    async def abandon(self) -> None:
        """It will not be done any more: say so at once, not when its lease runs out."""
        async with self._store_lock:
            await self._store_entries(
                self._recorder.keeping.ended(self.response, "failed", JOB_LOST), [], end_included=False
            )

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def _build_entries(self, response: Object, frames: list[NumberedFrame], end_included: bool) -> list[Entry]:
        """The answer as far as it is, with the promise to tell more; and more of its stream."""
        book, keeper = self._repository, self._recorder
        now = book.clock()
        status = keeper.keeping.status(response)
        kept = StoredResponse(
            items=keeper.items,
            response=response,
            conversation=keeper.wants.conversation,
            background=True,
            lease=now + book.lease if status in UNFINISHED_STATUSES else 0.0,
            told=end_included,
        )
        owner, parent = keeper.owner, keeper.wants.previous
        body = encode_record(kept)
        entries = [Entry(owner=owner, kind=RESPONSE, id=self.id, parent=parent, mark=status, body=body, created=now)]
        if frames:
            body, place = b"".join(frame for _, frame in frames), frames[-1][0] + 1
            name = f"{self.id}/{place}"
            entries.append(Entry(owner=owner, kind=EVENTS, id=name, parent=self.id, place=place, body=body))
        return entries

    def add_frames(self, data: bytes) -> None:
        """More of its stream, in whole frames."""
        self.frames += self._recorder.keeping.renumbered(data, self.next_number)
        self._notify_followers()

    async def store_progress(self, response: Object | None = None) -> bool | StoreDown:
        """Keep what there is; False when somebody cancelled it meanwhile. One at a time: each keeps what the one before
        has left."""
        async with self._store_lock:
            now = response if response is not None else self.response
            return True if self._end_is_stored else await self._store_entries(now, self.frames, end_included=False)

    async def store_end(
        self, response: Object, data: bytes, pointers: Sequence[Entry] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        """Keep its end, with the last of its stream: nobody is told of it before."""
        async with self._store_lock:
            frames = [*self.frames, *self._recorder.keeping.renumbered(data, self.next_number)]
            got = await self._store_entries(response, frames, True, pointers, appended)
            if got is True:
                self._publish_end(frames)
            return got

    def end_without_storing(self, data: bytes) -> None:
        """Its end cannot be kept: those who follow it are told all the same."""
        self._publish_end([*self.frames, *self._recorder.keeping.renumbered(data, self.next_number)])

    def _publish_end(self, frames: list[NumberedFrame]) -> None:
        self.frames, self.end_is_sent = frames, True
        self._notify_followers()

    async def _store_entries(
        self,
        response: Object,
        frames: list[NumberedFrame],
        end_included: bool,
        pointers: Sequence[Entry] = (),
        appended: Sequence[Entry] = (),
    ) -> bool | StoreDown:
        entries = self._build_entries(response, frames[self._stored_frames :], end_included)
        got = await self._repository.put(*entries, *pointers, required_marks=UNFINISHED_STATUSES, appended=appended)
        if got is True:
            self._stored_frames = max(self._stored_frames, len(frames))
            self.response = response
            self._end_is_stored = self._recorder.keeping.status(response) not in UNFINISHED_STATUSES
        return got

    def mark_done(self) -> None:
        self.is_done = True
        self._notify_followers()

    def _notify_followers(self) -> None:
        self._new_frames.set()
        self._new_frames = asyncio.Event()

    async def follow_stream(self, after: int) -> AsyncIterator[bytes]:
        """Its frames from behind this number, those to come as well, up to its end: also when it was cancelled."""
        async for frame in self._follow_frames(after):
            yield frame
        if self.end_is_sent:
            return
        keeping = self._recorder.keeping
        now = await self._repository.get_one(self._recorder.owner, RESPONSE, self.id)
        if isinstance(now, StoreDown) or (now is not None and now.mark in UNFINISHED_STATUSES):
            raise StreamInterrupted
        ended = (
            read_stored_response(now).response if now is not None else keeping.ended(self.response, "cancelled", None)
        )
        yield keeping.last(ended, self.next_number)

    async def _follow_frames(self, after: int) -> AsyncIterator[bytes]:
        position = 0
        while True:
            while position < len(self.frames):
                number, frame = self.frames[position]
                position += 1
                if number > after:
                    yield frame
            if self.is_done:
                return
            await self._new_frames.wait()


class BackgroundJobs:
    """All jobs of this gateway."""

    def __init__(self, repository: StateRepository) -> None:
        self._repository = repository
        self._jobs: dict[tuple[str, str], BackgroundJob] = {}

    def get(self, owner: str, id: str) -> BackgroundJob | None:
        return self._jobs.get((owner, id))

    def run_job(
        self,
        owner: str,
        job: BackgroundJob,
        work: JobCoroutine,
        make_failure_work: Callable[[BaseException], JobCoroutine],
    ) -> None:
        """Run it to its end; where our own code breaks, `broken` says what is to be done then."""
        self._jobs[owner, job.id] = job
        loop = asyncio.get_running_loop()
        promise = loop.create_task(self._renew_lease(job))

        def on_closed(_task: asyncio.Task[None]) -> None:
            promise.cancel()
            job.mark_done()
            self._jobs.pop((owner, job.id), None)

        def on_finished(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is None:
                on_closed(task)
            else:
                job.start(make_failure_work(error)).add_done_callback(on_closed)

        job.start(work).add_done_callback(on_finished)

    async def _renew_lease(self, job: BackgroundJob) -> None:
        """Renew the lease, and notice when it was cancelled elsewhere."""
        while True:
            await asyncio.sleep(self._repository.lease / 3)
            if await job.store_progress() is False:
                job.cancel()
                return

    async def close(self, seconds: float | None) -> None:
        """Until the last has ended: they are as good as any stream under way. What takes longer has failed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._jobs:
                    await asyncio.wait(self._tasks())
                    await asyncio.sleep(0)  # what is to be done behind a task has its turn
        late = list(self._jobs.values())
        await asyncio.gather(*(job.abandon() for job in late))
        for job in late:
            job.cancel()
        if self._jobs:
            await asyncio.wait(self._tasks())

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {job.task for job in self._jobs.values() if job.task is not None}


async def fail_if_abandoned(repository: StateRepository, keeping: Keeping, entry: Entry) -> Entry | StoreDown:
    """An answer as it is now: one that lost its gateway has failed."""
    kept = read_stored_response(entry)
    if entry.mark not in UNFINISHED_STATUSES or kept.lease >= repository.clock():
        return entry
    return await store_ending(repository, keeping, entry, "failed", JOB_LOST)


async def store_ending(
    repository: StateRepository, keeping: Keeping, entry: Entry, status: str, failure: Failure | None
) -> Entry | StoreDown:
    """An answer that will not come any more. Where another gateway was quicker, what that one said holds."""
    kept = read_stored_response(entry)
    response = keeping.ended(kept.response, status, failure)
    over = Entry(
        owner=entry.owner,
        kind=RESPONSE,
        id=entry.id,
        parent=entry.parent,
        mark=status,
        created=entry.created,
        body=encode_record(replace(kept, response=response, lease=0.0)),
    )
    got = await repository.put(over, required_marks=UNFINISHED_STATUSES)
    if isinstance(got, StoreDown):
        return got
    if got:
        return over
    now = await repository.get_one(entry.owner, RESPONSE, entry.id)
    return now if now is not None else over


def missing_end_event(keeping: Keeping, entry: Entry, number: int) -> bytes:
    """The last event of an answer that was cancelled or lost: nobody was left to tell it in its stream."""
    kept = read_stored_response(entry)
    return b"" if kept.told else keeping.last(kept.response, number)


async def follow_remote_job(
    repository: StateRepository,
    keeping: Keeping,
    entry: Entry,
    after: int,
    sleep: Callable[[float], Coroutine[object, object, None]],
) -> AsyncIterator[bytes]:
    """The frames of an answer that another gateway makes, as it keeps them."""
    last, seen = -1, after
    while True:
        now = await repository.get_one(entry.owner, RESPONSE, entry.id)
        if now is None:
            yield keeping.last(
                keeping.ended(read_stored_response(entry).response, "cancelled", None), max(last, seen + 1)
            )
            return
        state = now if isinstance(now, StoreDown) else await fail_if_abandoned(repository, keeping, now)
        pieces = await repository.get_children(entry.owner, EVENTS, entry.id, last if last >= 0 else None)
        if isinstance(pieces, StoreDown) or isinstance(state, StoreDown):
            raise StreamInterrupted
        for piece in pieces:
            last = piece.place
            # A piece may repeat what stands in the one before: whoever kept it was not told that it was kept.
            new = [(number, frame) for number, frame in keeping.numbered(piece.body) if number > seen]
            for number, frame in new:
                seen = number
                yield frame
        if state.mark not in UNFINISHED_STATUSES:
            yield missing_end_event(keeping, state, max(last, seen + 1))
            return
        await sleep(POLL_SECONDS)


STORE_INTERVAL = 0.2
"""Seconds between two pieces that are kept: whoever looks from elsewhere sees the answer grow."""
STORE_TIME_RATIO = 10
"""Between two pieces passes so many times the time that keeping one takes: the whole question is written each time."""
MAX_STORE_TRIES = 20
"""How often, a second apart, the end of an answer is tried to be kept in a store that is down."""
INTERNAL_ERROR = Failure("server", "the gateway made a mistake; its log says where", 500, "server_error")


class JobOutput:
    """Where the stream of a job goes: kept piece by piece, handed on to those who follow it."""

    def __init__(self, job: BackgroundJob, tap: Tap) -> None:
        self._job = job
        self._tap = tap
        self._last_stored = time.monotonic()
        self._store_interval = STORE_INTERVAL

    def write_nowait(self, data: bytes) -> bool:
        self._job.add_frames(self._tap.feed(data))
        return time.monotonic() - self._last_stored < self._store_interval

    async def drain(self) -> None:
        began = time.monotonic()
        if began - self._last_stored >= self._store_interval:
            if await self._job.store_progress() is False:
                raise asyncio.CancelledError  # by somebody at another gateway
            self._last_stored = time.monotonic()
            self._store_interval = max(STORE_INTERVAL, STORE_TIME_RATIO * (self._last_stored - began))

    async def end(self) -> None:
        """What the end tells is kept by whoever started this."""
        self._job.add_frames(self._tap.close())

    def close(self) -> None:
        """Nothing to give back."""


async def run_background_call(
    pipeline: Pipeline, call: GatewayCall, targets: tuple[Target, ...], recorder: StoringRecorder, job: BackgroundJob
) -> None:
    """Ask, and keep what comes. A cancelled one just stops: whoever cancelled it has said so."""
    pipeline.start_background_record(call)
    tap = recorder.open_tap()
    try:
        got = await pipeline.request_answer(call, targets)
        if isinstance(got, StartedStream):
            await job.store_running()
            await pipeline.relay_stream(call, got, JobOutput(job, tap))
            if tap.response is not None:
                await _store_completed(job, recorder, tap, tap.response)
                return
        failure = got.failure if isinstance(got, AttemptFailed) else Failure("upstream", "the answer broke off", 502)
        await store_failed(job, recorder, failure)
    finally:
        pipeline.finish_background_record(call)


async def _store_completed(job: BackgroundJob, recorder: StoringRecorder, tap: Tap, response: Object) -> None:
    """What was done is not thrown away because the store is down for a moment: that is waited for."""
    for _ in range(MAX_STORE_TRIES):
        parts = await recorder.linked_entries(response)
        if not isinstance(parts, StoreDown) and not isinstance(
            await job.store_end(response, tap.release(EMPTY_MAPPING), *parts), StoreDown
        ):
            return
        await asyncio.sleep(1.0)
    job.end_without_storing(tap.release(recorder.keeping.unkept))


async def store_failed(job: BackgroundJob, recorder: StoringRecorder, failure: Failure) -> None:
    response = recorder.keeping.ended(job.response, "failed", failure)
    last = recorder.keeping.last(response, job.next_number)
    for _ in range(MAX_STORE_TRIES):
        if not isinstance(await job.store_end(response, last), StoreDown):
            return
        await asyncio.sleep(1.0)
    job.end_without_storing(last)
