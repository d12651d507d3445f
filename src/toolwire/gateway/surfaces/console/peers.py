"""The other workers of a gateway: each answers questions of the console on a Unix socket in a directory that only this
user can enter, so that the page shows the exchanges of all of them.

A question is one message, and its answer one or more. A message is its length in four bytes, then its data; an empty
one is the end.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from toolwire.gateway.surfaces.console.access import make_secret

ANSWER_SECONDS = 5.0
"""For the first message of an answer."""
MAX_MESSAGE = 64 * 1024 * 1024
SECRET_FILE = "secret"


class Question(msgspec.Struct, frozen=True):
    """What one worker asks another: `name` is a row of the table in `endpoints.py`."""

    name: str
    argument: str = ""


AnswerQuestion = Callable[[Question], Awaitable[AsyncIterator[bytes]]]


def load_secret(directory: Path) -> bytes:
    """The secret that signs cookies, the same for all workers: the first one makes it. It is written before it has its
    name, because others who find it empty would sign with nothing."""
    path = directory / SECRET_FILE
    descriptor, made = tempfile.mkstemp(dir=directory, prefix=SECRET_FILE)  # which nobody else may read
    with os.fdopen(descriptor, "wb") as file:
        file.write(make_secret())
    with suppress(FileExistsError):
        os.link(made, path)
    os.unlink(made)
    return path.read_bytes()


class Peers:
    """The other workers. Without a directory there are none."""

    def __init__(self, directory: Path | None = None, worker: int = 0) -> None:
        self._directory, self._worker = directory, worker
        self._server: asyncio.Server | None = None

    async def open(self, answer: AnswerQuestion) -> None:
        if self._directory is None:
            return
        path = self._socket_path(self._worker)
        path.unlink(missing_ok=True)  # of a worker that died, whose place this one has

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, asyncio.IncompleteReadError):
                question = msgspec.json.decode(await _read_message(reader), type=Question)
                async for data in await answer(question):
                    _write_message(writer, data)
                    await writer.drain()
                _write_message(writer, b"")
                await writer.drain()
            writer.close()

        self._server = await asyncio.start_unix_server(serve, path)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def others(self) -> Sequence[int]:
        """The numbers of the other workers."""
        if self._directory is None:
            return ()
        found = (int(path.stem) for path in self._directory.glob("*.socket"))
        return sorted(worker for worker in found if worker != self._worker)

    async def ask(self, worker: int, question: Question) -> bytes | None:
        """The first message of an answer; None if the worker does not answer."""
        messages = self.stream(worker, question)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await anext(messages, None)
        except TimeoutError:
            return None
        finally:
            await messages.aclose()

    async def ask_all(self, question: Question) -> list[bytes]:
        """The answers of all workers that answer."""
        answers = await asyncio.gather(*(self.ask(worker, question) for worker in self.others()))
        return [answer for answer in answers if answer is not None]

    async def stream(self, worker: int, question: Question) -> AsyncGenerator[bytes, None]:
        """The messages of an answer. It ends early if the worker dies."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._socket_path(worker))
        except OSError:
            return
        try:
            _write_message(writer, msgspec.json.encode(question))
            while data := await _read_message(reader):
                yield data
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _socket_path(self, worker: int) -> Path:
        return (self._directory or Path()) / f"{worker}.socket"


def _write_message(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(len(data).to_bytes(4, "big") + data)


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(min(size, MAX_MESSAGE))
