"""The transport that uses the library: no gateway, no sockets, one translation there and one back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from toolwire import Loss, Malformed, Refused, Stream, Translation, translate
from toolwire.conformance.frames import compact
from toolwire.conformance.match import Json
from toolwire.conformance.player import Answerer, Asked, Given, Received, Seen
from toolwire.ir import Failure
from toolwire.protocols import room

NOW = 1767225600


class InProcess:
    """Translates with the library; bodies travel as bytes, as they would over HTTP."""

    def send(self, asked: Asked, answer: Answerer) -> Seen:
        body = compact(asked.body).encode()
        outside: dict[str, Any] = {"model": asked.model, "stream": asked.stream, "now": NOW}
        try:
            there = translate(body, "request", source=asked.protocol, target=asked.provider, **outside)
        except (Malformed, Refused) as error:
            sent = room(asked.protocol).write_error(Failure("invalid", str(error), 400))
            return Seen(sent.status, sent.headers, (compact(sent.body),), [])
        given = answer(Received(there.json(), there.model, there.stream))
        way_back: dict[str, Any] = {"source": asked.provider, "target": asked.protocol, "request": body, **outside}
        if given.stream:
            return self._stream(Stream(**way_back), given, there)
        text = "".join(given.pieces).encode()
        if given.status < 400:
            back = translate(text, "response", **way_back)
        else:
            back = translate(text, "error", status=given.status, headers=given.headers, **way_back)
        return Seen(back.status, back.headers, (back.body.decode(),), _plain((*there.losses, *back.losses)))

    def _stream(self, stream: Stream, given: Given, there: Translation) -> Seen:
        pieces = [_fed(stream, piece.encode(), given.bytewise) for piece in given.pieces]
        pieces.append(stream.close().decode())
        return Seen(200, {}, tuple(pieces), _plain((*there.losses, *stream.losses)))


def _fed(stream: Stream, data: bytes, bytewise: bool) -> str:
    size = 1 if bytewise else max(1, len(data))
    return b"".join(stream.feed(data[at : at + size]) for at in range(0, len(data), size)).decode()


def _plain(losses: Sequence[Loss]) -> list[Json]:
    return [to_builtins(loss) for loss in losses]
