"""Background responses (`background: true`): the client gets the id at once and fetches the response later.

A job stores the response and its stream piece by piece, each time with a lease: a promise to store more soon. Any
gateway on the same store can show the response and can cancel it; the gateway that runs the job notices that when it
stores the next piece. A job whose lease has run out and is not renewed has lost its gateway, and counts as failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress

from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.core.json_values import Object, encode
from toolwire.gateway.exchange.gateway_request import AttemptFailed, GatewayRequest, StartedStream, StreamInterrupted
from toolwire.gateway.exchange.stages import RequestRunner
from toolwire.gateway.features.responses.recorder import (
    StoringRecorder,
    StreamTap,
    number_frames,
    read_stored_response,
    renumber_frames,
)
from toolwire.gateway.features.responses.response_objects import (
    NOT_STORED_FIELDS,
    read_text,
    write_ended_response,
    write_response_stream,
    write_terminal_event,
)
from toolwire.gateway.settings.router import Target
from toolwire.gateway.store.repository import EVENTS, RESPONSE, StateRepository
from toolwire.gateway.store.store import Entry, StoreDown
from toolwire.protocols.openai_responses.names import UNFINISHED_STATUSES

JOB_LOST = Failure("server", "the gateway stopped before this response was complete", 500, "server_error")
POLL_SECONDS = 0.25
"""Seconds between two looks at a response that another gateway makes."""
RENEWALS_PER_LEASE = 3
NumberedFrame = tuple[int, bytes]
JobCoroutine = Coroutine[object, object, None]


class BackgroundJob:
    """One background response that this gateway makes."""

    def __init__(self, repository: StateRepository, recorder: StoringRecorder, queued: Object, running: Object) -> None:
        self.id = read_text(queued, "id")
        self.frames: list[NumberedFrame] = renumber_frames(write_response_stream(queued), 0)
        """Its stream so far. The first events exist at once, so that the client knows the id."""
        self.response = queued
        self.running_response = running
        """The response with the status `in_progress`, once the provider has started to answer."""
        self.is_done = False
        self.end_is_sent = False
        """Is the last event among the frames?"""
        self._repository = repository
        self._recorder = recorder
        self._stored_frames = 0
        self._end_is_stored = False
        self._store_lock = asyncio.Lock()
        self._new_frames = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def next_number(self) -> int:
        return self.frames[-1][0] + 1 if self.frames else 0

    async def store_queued(self) -> bool | StoreDown:
        count = len(self.frames)
        result = await self._repository.put(*self._build_entries(self.response, self.frames, has_end_event=False))
        self._stored_frames = count
        return result

    async def abandon(self) -> None:
        """Store that it failed because the gateway stops, without waiting for the lease to run out."""
        async with self._store_lock:
            failed = write_ended_response(self.response, "failed", JOB_LOST)
            await self._store_entries(failed, [], has_end_event=False)

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def _build_entries(self, response: Object, frames: list[NumberedFrame], has_end_event: bool) -> list[Entry]:
        """The entries of the response, with a new lease, and of these frames of its stream."""
        is_unfinished = read_text(response, "status") in UNFINISHED_STATUSES
        lease = self._repository.clock() + self._repository.lease if is_unfinished else 0.0
        entry = self._recorder.response_entry(response, background=True, lease=lease, has_end_event=has_end_event)
        entries = [entry]
        if frames:
            body, place = b"".join(frame for _, frame in frames), frames[-1][0] + 1
            id = f"{self.id}/{place}"
            entries.append(Entry(owner=entry.owner, kind=EVENTS, id=id, parent=self.id, place=place, body=body))
        return entries

    def add_frames(self, data: bytes) -> None:
        """Add complete frames to its stream."""
        self.frames += renumber_frames(data, self.next_number)
        self._notify_followers()

    async def store_progress(self, response: Object | None = None) -> bool | StoreDown:
        """Store the frames that are not stored yet, and renew the lease. False if the response was cancelled."""
        async with self._store_lock:
            if self._end_is_stored:
                return True
            return await self._store_entries(response or self.response, self.frames, has_end_event=False)

    async def store_end(
        self, response: Object, data: bytes, pointers: Sequence[Entry] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        """Store the finished response and the rest of its stream; followers see the last event after that."""
        async with self._store_lock:
            frames = [*self.frames, *renumber_frames(data, self.next_number)]
            result = await self._store_entries(response, frames, True, pointers, appended)
            if result is True:
                self.publish_end(data)
            return result

    def publish_end(self, data: bytes) -> None:
        """Send the last event to followers."""
        self.end_is_sent = True
        self.add_frames(data)

    async def _store_entries(
        self,
        response: Object,
        frames: list[NumberedFrame],
        has_end_event: bool,
        pointers: Sequence[Entry] = (),
        appended: Sequence[Entry] = (),
    ) -> bool | StoreDown:
        count = len(frames)  # the list grows while the store writes
        entries = self._build_entries(response, frames[self._stored_frames :], has_end_event)
        result = await self._repository.put(*entries, *pointers, required_marks=UNFINISHED_STATUSES, appended=appended)
        if result is True:
            self._stored_frames = max(self._stored_frames, count)
            self.response = response
            self._end_is_stored = read_text(response, "status") not in UNFINISHED_STATUSES
        return result

    def mark_done(self) -> None:
        self.is_done = True
        self._notify_followers()

    def _notify_followers(self) -> None:
        self._new_frames.set()
        self._new_frames = asyncio.Event()

    async def follow_stream(self, after: int) -> AsyncIterator[bytes]:
        """Its frames after this sequence number, as they come, up to the last event; also when it was cancelled."""
        position = 0
        while position < len(self.frames) or not self.is_done:
            if position == len(self.frames):
                await self._new_frames.wait()
                continue
            number, frame = self.frames[position]
            position += 1
            if number > after:
                yield frame
        if self.end_is_sent:
            return
        entry = await self._repository.get_one(self._recorder.owner, RESPONSE, self.id)
        if isinstance(entry, StoreDown) or (entry is not None and entry.mark in UNFINISHED_STATUSES):
            raise StreamInterrupted
        cancelled = write_ended_response(self.response, "cancelled", None)
        yield write_terminal_event(read_stored_response(entry).response if entry else cancelled, self.next_number)


class BackgroundJobs:
    def __init__(self, repository: StateRepository) -> None:
        self._repository = repository
        self._jobs: dict[tuple[str, str], BackgroundJob] = {}

    def get(self, owner: str, id: str) -> BackgroundJob | None:
        return self._jobs.get((owner, id))

    def run_job(
        self, owner: str, job: BackgroundJob, work: JobCoroutine, on_error: Callable[[BaseException], JobCoroutine]
    ) -> None:
        """Run a job to its end; `on_error` gives the work that remains if the gateway's own code raises."""
        self._jobs[owner, job.id] = job
        lease_task = asyncio.create_task(self._renew_lease(job))

        def on_closed(_task: asyncio.Task[None]) -> None:
            lease_task.cancel()
            job.mark_done()
            self._jobs.pop((owner, job.id), None)

        def on_finished(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is None:
                on_closed(task)
            else:
                job.task = asyncio.create_task(on_error(error))
                job.task.add_done_callback(on_closed)

        job.task = asyncio.create_task(work)
        job.task.add_done_callback(on_finished)

    async def _renew_lease(self, job: BackgroundJob) -> None:
        """Renew the lease, and notice when the response was cancelled through another gateway."""
        while True:
            await asyncio.sleep(self._repository.lease / RENEWALS_PER_LEASE)
            if await job.store_progress() is False:
                job.cancel()
                return

    async def close(self, seconds: float | None) -> None:
        """Wait until all jobs have ended; those that take longer than this fail."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._jobs:
                    await asyncio.wait(self._tasks())
                    await asyncio.sleep(0)  # lets the tasks' callbacks run
        late = list(self._jobs.values())
        await asyncio.gather(*(job.abandon() for job in late))
        for job in late:
            job.cancel()
        if self._jobs:
            await asyncio.wait(self._tasks())

    def _tasks(self) -> set[asyncio.Task[None]]:
        return {job.task for job in self._jobs.values() if job.task is not None}


# --- responses of other gateways --------------------------------------------------------------------------------------


async def fail_if_abandoned(repository: StateRepository, entry: Entry) -> Entry | StoreDown:
    """The entry of a response; if its lease has run out, it is stored as failed first."""
    if entry.mark not in UNFINISHED_STATUSES:
        return entry
    if not repository.has_lapsed(entry.owner, entry.id, read_stored_response(entry).lease):
        return entry
    return await store_ending(repository, entry, "failed", JOB_LOST)


async def store_ending(
    repository: StateRepository, entry: Entry, status: str, failure: Failure | None
) -> Entry | StoreDown:
    """Store that a response has failed or was cancelled. If another gateway has stored its end first, that holds."""
    stored = read_stored_response(entry)
    response = write_ended_response(stored.response, status, failure)
    body = encode(replace(stored, response=response, lease=0.0))
    ended = replace(entry, mark=status, body=body, place=0, expires=0.0)
    result = await repository.put(ended, required_marks=UNFINISHED_STATUSES)
    if isinstance(result, StoreDown):
        return result
    if result:
        return ended
    current = await repository.get_one(entry.owner, RESPONSE, entry.id)
    return current if current is not None else ended


async def follow_remote_job(repository: StateRepository, entry: Entry, after: int) -> AsyncIterator[bytes]:
    """The frames of a response that another gateway makes, as it stores them."""
    last, seen = -1, after
    while True:
        current = await repository.get_one(entry.owner, RESPONSE, entry.id)
        if current is None:
            cancelled = write_ended_response(read_stored_response(entry).response, "cancelled", None)
            yield write_terminal_event(cancelled, max(last, seen + 1))
            return
        if not isinstance(current, StoreDown):
            current = await fail_if_abandoned(repository, current)
        if isinstance(current, StoreDown):
            raise StreamInterrupted
        async for piece in repository.iterate_children(entry.owner, EVENTS, entry.id, last if last >= 0 else None):
            if isinstance(piece, StoreDown):
                raise StreamInterrupted
            last = piece.place
            # A piece may repeat frames of the one before, if the answer of the store to that one was lost.
            for number, frame in [one for one in number_frames(piece.body) if one[0] > seen]:
                seen = number
                yield frame
        if current.mark not in UNFINISHED_STATUSES:
            stored = read_stored_response(current)
            if not stored.has_end_event:  # it was cancelled or lost
                yield write_terminal_event(stored.response, max(last, seen + 1))
            return
        await asyncio.sleep(POLL_SECONDS)


# --- running a job ----------------------------------------------------------------------------------------------------

STORE_INTERVAL = 0.2
"""Seconds between two stored pieces of a stream, so that clients of other gateways can follow it."""
STORE_TIME_RATIO = 10
"""The pause between two pieces is at least this many times as long as storing one takes: each writes the whole request
again."""
MAX_STORE_TRIES = 20
"""How often, a second apart, the end of a response is written to a store that is down."""
INTERNAL_ERROR = Failure("server", "internal error of the gateway; see its log", 500, "server_error")


class JobOutput:
    """The output stream of a job: stores it piece by piece, and passes it to the clients that follow it."""

    def __init__(self, job: BackgroundJob, tap: StreamTap) -> None:
        self._job = job
        self._tap = tap
        self._last_stored = time.monotonic()
        self._store_interval = STORE_INTERVAL

    def write_nowait(self, data: bytes) -> bool:
        self._job.add_frames(self._tap.feed(data))
        return time.monotonic() - self._last_stored < self._store_interval

    async def drain(self) -> None:
        started = time.monotonic()
        if started - self._last_stored >= self._store_interval:
            if await self._job.store_progress() is False:
                raise asyncio.CancelledError  # through another gateway
            self._last_stored = time.monotonic()
            self._store_interval = max(STORE_INTERVAL, STORE_TIME_RATIO * (self._last_stored - started))

    async def end(self) -> None:
        """Add the rest; the last event is stored by `run_background_request`."""
        self._job.add_frames(self._tap.close())

    def close(self) -> None:
        """Nothing to release."""


async def run_background_request(
    pipeline: RequestRunner,
    request: GatewayRequest,
    targets: tuple[Target, ...],
    recorder: StoringRecorder,
    job: BackgroundJob,
) -> None:
    """Send the request and store its response. A cancelled request just stops: the cancelling request stores its
    status."""
    tap = recorder.open_tap()
    try:
        answer = await pipeline.request_answer(request, targets)
        if isinstance(answer, StartedStream):
            await job.store_progress(job.running_response)
            await pipeline.relay_stream(request, answer, JobOutput(job, tap))
            if tap.response is not None:
                ends = tap.release(EMPTY_MAPPING), tap.release(NOT_STORED_FIELDS)
                await _store_end(job, tap.response, *ends, recorder)
                return
        incomplete = Failure("upstream", "the provider's stream ended early", 502)
        failure = answer.failure if isinstance(answer, AttemptFailed) else incomplete
        request.record.failure, request.record.message = failure.kind, failure.message
        await store_failed(job, failure)
    finally:
        request.record.status = request.record.status or (500 if request.record.failure else 200)
        request.runtime.telemetry.finish_exchange(request.running, request.clock())


def start_record(gateway_request: GatewayRequest) -> GatewayRequest:
    """Give the background request its own log record: the client's request ends before its response, and maybe before
    its job runs."""
    request, request_record = gateway_request.running, gateway_request.record
    record = request_record.make_related("background", gateway_request.clock(), time.time())
    record.asked.model, record.asked.stream = request_record.asked.model, True
    if request_record.traffic.capture is not None:
        record.traffic.capture = request_record.traffic.capture.copy_for(gateway_request.body.data)
    running = gateway_request.runtime.telemetry.start_exchange(record)
    running.take_over(request)
    return replace(gateway_request, running=running, record=record)


async def _store_end(
    job: BackgroundJob, response: Object, end: bytes, end_if_not_stored: bytes, recorder: StoringRecorder | None = None
) -> None:
    """Store the finished response, with what the recorder links to it. If the store is down, wait for it."""
    for _ in range(MAX_STORE_TRIES):
        linked = ((), ()) if recorder is None else await recorder.linked_entries(response)
        if not isinstance(linked, StoreDown) and not isinstance(await job.store_end(response, end, *linked), StoreDown):
            return
        await asyncio.sleep(1.0)
    job.publish_end(end_if_not_stored)


async def store_failed(job: BackgroundJob, failure: Failure) -> None:
    response = write_ended_response(job.response, "failed", failure)
    last = write_terminal_event(response, job.next_number)
    await _store_end(job, response, last, last)
