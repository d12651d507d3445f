"""Objects that a provider makes while it answers: containers for code, the files in them, and what it keeps of the
answer itself. They belong to the key that got the answer, and that is noted before the client sees their ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolwire.core.codec import Http
from toolwire.core.framing import FrameSplitter
from toolwire.core.json_values import Malformed, parse_object
from toolwire.core.sse import FrameTooLong
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.messages import UpstreamResponse

NoteNames = Callable[[tuple[str, ...]], Awaitable[None]]


class WatchedResponse(UpstreamResponse):
    """A provider's answer that is searched for new objects while it is read: what a chunk names is noted before the
    client gets it."""

    def __init__(self, source: UpstreamResponse, http: Http, note_names: NoteNames) -> None:
        self.status: int = source.status
        self.headers: dict[str, str] = source.headers
        self._source, self._find_created_objects, self._note_names = source, http.find_created_objects, note_names
        self._markers = (*http.created_object_markers, b"\\u00")  # the keys may be written with escapes
        self._splitter: FrameSplitter | None = http.framing.make_splitter()
        self._noted: set[str] = set()

    async def read(self, limit: int) -> bytes | TransportError:
        data = await self._source.read(limit)
        if isinstance(data, bytes):
            if data.lstrip()[:1] == b"{":
                await self._note_objects([data])
            else:
                await self._watch_frames(data + b"\n\n")
        return data

    async def read_chunk(self) -> bytes | TransportError:
        data = await self._source.read_chunk()
        if isinstance(data, bytes):
            await self._watch_frames(data)
        return data

    async def wait_for_data(self, seconds: float) -> bool:
        return await self._source.wait_for_data(seconds)

    def abort(self) -> None:
        self._source.abort()

    async def _watch_frames(self, data: bytes) -> None:
        if self._splitter is not None:
            try:
                await self._note_objects([frame.data for frame in self._splitter.feed(data)])
            except FrameTooLong:
                self._splitter = None  # the client's reader gives up, too

    async def _note_objects(self, texts: list[bytes]) -> None:
        new: dict[str, None] = {}
        for text in texts:
            if any(marker in text for marker in self._markers):
                with suppress(Malformed):
                    created = self._find_created_objects(parse_object(text))
                    new |= dict.fromkeys(name for name in created if name not in self._noted)
        if new:
            self._noted.update(new)
            await self._note_names(tuple(new))
