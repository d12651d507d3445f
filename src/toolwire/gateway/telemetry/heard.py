"""What an exchange says on both sides, copied while it goes by: only where the log is to tell of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from toolwire.gateway.upstream.faults import Fault

MOST = 8 * 1024 * 1024
"""Bytes of a body that are copied; a longer one is not read."""


class Source(Protocol):
    """An answer as it comes in."""

    status: int
    headers: dict[str, str]

    async def read(self, limit: int) -> bytes | Fault: ...

    async def comes(self, seconds: float) -> bool: ...

    async def chunk(self) -> bytes | Fault: ...

    async def pour(self, sink: Callable[[bytes], bool]) -> bytes | Fault | None: ...

    def abort(self) -> None: ...


class Outflow(Protocol):
    """Where a stream goes."""

    def put(self, data: bytes) -> bool: ...

    async def drained(self) -> None: ...

    async def end(self) -> None: ...

    def close(self) -> None: ...


class Copy:
    """The start of what went by."""

    __slots__ = ("_data", "long")

    def __init__(self, data: bytes = b"") -> None:
        self._data = bytearray()
        self.long = False
        self.add(data)

    def add(self, data: bytes) -> None:
        self.long = self.long or len(self._data) + len(data) > MOST
        if not self.long:
            self._data += data

    @property
    def data(self) -> bytes:
        return b"" if self.long else bytes(self._data)


class Heard:
    """An answer that is copied while it comes in."""

    def __init__(self, source: Source, copy: Copy) -> None:
        self.status, self.headers = source.status, source.headers
        self._source, self._copy = source, copy

    async def read(self, limit: int) -> bytes | Fault:
        return self._copied(await self._source.read(limit))

    async def comes(self, seconds: float) -> bool:
        return await self._source.comes(seconds)

    async def chunk(self) -> bytes | Fault:
        return self._copied(await self._source.chunk())

    async def pour(self, sink: Callable[[bytes], bool]) -> bytes | Fault | None:
        def copying(data: bytes) -> bool:
            self._copy.add(data)
            return sink(data)

        return await self._source.pour(copying)

    def abort(self) -> None:
        self._source.abort()

    def _copied(self, data: bytes | Fault) -> bytes | Fault:
        if isinstance(data, bytes):
            self._copy.add(data)
        return data


class Spoken:
    """A stream to the client that is copied while it goes out."""

    def __init__(self, outflow: Outflow, copy: Copy) -> None:
        self._outflow, self._copy = outflow, copy

    def put(self, data: bytes) -> bool:
        self._copy.add(data)
        return self._outflow.put(data)

    async def drained(self) -> None:
        await self._outflow.drained()

    async def end(self) -> None:
        await self._outflow.end()

    def close(self) -> None:
        self._outflow.close()


class Asked:
    """One question to a provider and its answer."""

    __slots__ = ("answer", "body", "protocol", "provider", "status", "url")

    def __init__(self, protocol: str, provider: str, url: str, body: bytes) -> None:
        self.protocol, self.provider, self.url, self.body = protocol, provider, url, body
        self.answer = Copy()
        self.status = 0


class Overheard:
    """Everything of one exchange, on both sides."""

    __slots__ = ("_given", "asked", "came")

    def __init__(self, came: bytes) -> None:
        self.came = came
        self.asked: list[Asked] = []
        self._given = Copy()

    def asks(self, protocol: str, provider: str, url: str, body: bytes) -> Asked:
        self.asked.append(Asked(protocol, provider, url, body))
        return self.asked[-1]

    @staticmethod
    def hears(asked: Asked, source: Source) -> Heard:
        asked.status = source.status
        return Heard(source, asked.answer)

    def gives(self, data: bytes) -> None:
        self._given.add(data)

    def speaks(self, outflow: Outflow) -> Spoken:
        return Spoken(outflow, self._given)

    @property
    def given(self) -> bytes:
        return self._given.data
