"""The load generator: a process that takes jobs as lines of JSON and answers each with what it saw.

Every connection asks, waits for the whole answer, and asks again, until the job's requests are spent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import httptools
import msgspec
import uvloop

SAMPLES = 4


class Job(msgspec.Struct, frozen=True, kw_only=True):
    port: int
    path: str
    headers: dict[str, str]
    body: str
    requests: int
    connections: int = 16
    needle: str = ""
    """What must stand in every answer."""
    deadline: float = 120.0


class Result(msgspec.Struct, kw_only=True):
    seconds: float = 0.0
    latencies: list[float] = []
    statuses: dict[str, int] = {}
    wrong: int = 0
    """Answers that were not 200, did not hold the needle, or never came."""
    reads: int = 0
    """How often bytes arrived: in a stream about once an event, unless events came bunched."""
    samples: list[str] = []


class Run:
    """One job: what is left to ask, and what came back."""

    def __init__(self, job: Job, loop: asyncio.AbstractEventLoop) -> None:
        body = job.body.encode()
        headers = {"host": f"127.0.0.1:{job.port}", **job.headers, "content-length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        self.request = f"POST {job.path} HTTP/1.1\r\n{lines}\r\n".encode() + body
        self.needle = job.needle.encode()
        self.left = job.requests
        self.waiting = job.requests
        self.done: asyncio.Future[None] = loop.create_future()
        self.result = Result()

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0

    def record_answer(self, status: int, body: bytes, seconds: float) -> None:
        result = self.result
        result.latencies.append(seconds)
        result.statuses[str(status)] = result.statuses.get(str(status), 0) + 1
        good = status == 200 and self.needle in body
        result.wrong += not good
        # The first answers are kept, the last, and the first that is wrong.
        if len(result.samples) < SAMPLES or (result.wrong == 1 and not good) or self.waiting == 1:
            result.samples.append(body.decode(errors="replace"))
        self._settle()

    def lost(self) -> None:
        self.result.wrong += 1
        self.result.statuses["none"] = self.result.statuses.get("none", 0) + 1
        self._settle()

    def _settle(self) -> None:
        self.waiting -= 1
        if self.waiting <= 0 and not self.done.done():
            self.done.set_result(None)


class Connection(asyncio.Protocol):
    def __init__(self, run: Run, again: Any) -> None:
        self._run = run
        self._again = again
        self._transport: asyncio.Transport
        self._busy = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        if not self._run.take():
            self._transport.close()
            return
        self._busy = True
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._start = time.perf_counter()
        self._transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        self._run.result.reads += 1
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        seconds = time.perf_counter() - self._start
        self._busy = False
        self._run.record_answer(self._parser.get_status_code(), b"".join(self._body), seconds)
        if self._parser.should_keep_alive():
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if self._busy:
            self._run.lost()
        if self._run.left > 0:
            self._again()


async def run(job: Job) -> Result:
    loop = asyncio.get_running_loop()
    state = Run(job, loop)
    opening: set[asyncio.Task[None]] = set()

    async def connect() -> None:
        try:
            await loop.create_connection(lambda: Connection(state, again), "127.0.0.1", job.port)
        except OSError:
            if state.take():
                state.lost()
                again()

    def again() -> None:
        task = loop.create_task(connect())
        opening.add(task)
        task.add_done_callback(opening.discard)

    start = time.perf_counter()
    for _ in range(min(job.connections, job.requests)):
        again()
    try:
        await asyncio.wait_for(state.done, job.deadline)
    except TimeoutError:
        state.left = 0
        state.result.wrong += state.waiting
        state.result.statuses["late"] = state.waiting
    state.result.seconds = time.perf_counter() - start
    return state.result


def main() -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for line in sys.stdin:
            job = msgspec.json.decode(line, type=Job)
            sys.stdout.write(json.dumps(msgspec.to_builtins(runner.run(run(job)))) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
