"""Bodies that come packed, unpacked piece by piece, never more at once than asked for."""

from __future__ import annotations

import zlib

from toolwire.gateway.upstream.faults import Fault

ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class Unpacker:
    """Packed bytes in, at most `most` bytes out; what is left over waits for the next call."""

    __slots__ = ("_deflate", "_peer", "_stream", "_tail", "pending")

    def __init__(self, encoding: str, peer: str) -> None:
        self._deflate = encoding == "deflate"
        self._peer = peer
        self._tail = b""
        self._stream: zlib._Decompress | None = None
        self.pending = False
        """Can more come out without more going in?"""

    def feed(self, data: bytes, most: int) -> bytes | Fault:
        data = self._tail + data if self._tail else data
        pieces: list[bytes] = []
        room = most
        try:
            while room and (data or self.pending):
                piece, data = self._step(data, room)
                pieces.append(piece)
                room -= len(piece)
                # What the limit held back may stand in the stream, though it has taken all that was given.
                self.pending = not room
        except zlib.error:
            return Fault("protocol", f"{self._peer} sent a body that is not packed as its content-encoding says")
        self._tail = data
        self.pending = bool(data) or not room
        return b"".join(pieces)

    def finish(self) -> Fault | None:
        """The end of input."""
        if self._stream is None or self._stream.eof:
            return None
        return Fault("cut", f"{self._peer} sent a packed body that ends before its end")

    def _step(self, data: bytes, room: int) -> tuple[bytes, bytes]:
        stream = self._stream
        if stream is None or (stream.eof and data[:1] == b"\x1f" and not self._deflate):
            stream = self._stream = zlib.decompressobj(self._window(data))
        elif stream.eof:
            return b"", b""  # padding behind the end
        piece = stream.decompress(data, room)
        return piece, stream.unused_data if stream.eof else stream.unconsumed_tail

    def _window(self, data: bytes) -> int:
        if not self._deflate:
            return 16 + zlib.MAX_WBITS
        # "deflate" means zlib's wrapping, but some servers send it bare; the first byte tells.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
