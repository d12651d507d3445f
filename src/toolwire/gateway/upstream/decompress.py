"""Bodies that come packed, unpacked piece by piece, never more at once than asked for."""

from __future__ import annotations

import zlib

from toolwire.gateway.upstream.errors import TransportError

ENCODINGS = frozenset({"gzip", "x-gzip", "deflate"})


class Decompressor:
    """Packed bytes in, at most `most` bytes out; what is left over waits for the next call."""

    __slots__ = ("_decompressor", "_is_deflate", "_peer", "_tail", "has_pending")

    def __init__(self, encoding: str, peer: str) -> None:
        self._is_deflate = encoding == "deflate"
        self._peer = peer
        self._tail = b""
        self._decompressor: zlib._Decompress | None = None
        self.has_pending = False
        """Can more come out without more going in?"""

    def feed(self, data: bytes, max_bytes: int) -> bytes | TransportError:
        data = self._tail + data if self._tail else data
        pieces: list[bytes] = []
        room = max_bytes
        try:
            while room and (data or self.has_pending):
                piece, data = self._decompress_step(data, room)
                pieces.append(piece)
                room -= len(piece)
                # What the limit held back may stand in the stream, though it has taken all that was given.
                self.has_pending = not room
        except zlib.error:
            return TransportError(
                "protocol", f"{self._peer} sent a body that is not packed as its content-encoding says"
            )
        self._tail = data
        self.has_pending = bool(data) or not room
        return b"".join(pieces)

    def finish(self) -> TransportError | None:
        """The end of input."""
        if self._decompressor is None or self._decompressor.eof:
            return None
        return TransportError("cut", f"{self._peer} sent a packed body that ends before its end")

    def _decompress_step(self, data: bytes, max_bytes: int) -> tuple[bytes, bytes]:
        stream = self._decompressor
        if stream is None or (stream.eof and data[:1] == b"\x1f" and not self._is_deflate):
            stream = self._decompressor = zlib.decompressobj(self._window_bits(data))
        elif stream.eof:
            return b"", b""  # padding behind the end
        piece = stream.decompress(data, max_bytes)
        return piece, stream.unused_data if stream.eof else stream.unconsumed_tail

    def _window_bits(self, data: bytes) -> int:
        if not self._is_deflate:
            return 16 + zlib.MAX_WBITS
        # "deflate" means zlib's wrapping, but some servers send it bare; the first byte tells.
        return zlib.MAX_WBITS if data[0] & 0x0F == 8 else -zlib.MAX_WBITS
