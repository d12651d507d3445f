"""A transport that translates with the library, without HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from toolwire import Loss, Malformed, Refused, Stream, Translation, translate
from toolwire.core.ir import Failure
from toolwire.core.json_values import Json
from toolwire.protocols import find_codec
from toolwire_conformance.peers import PEERS
from toolwire_conformance.peers.peer import SSE, encode_json
from toolwire_conformance.player import AnswerCall, ClientCall, ClientView, ProviderAnswer, ReceivedCall

NOW = 1767225600


class InProcessTransport:
    """Translates with the library. Bodies are bytes, as over HTTP."""

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        body = encode_json(call.body).encode()
        outside: dict[str, Any] = {"model": call.model, "stream": call.stream, "now": NOW}
        try:
            there = translate(body, "request", source=call.protocol, target=call.provider, **outside)
        except (Malformed, Refused) as error:
            refusal = find_codec(call.protocol).write_error(Failure("invalid", str(error), 400))
            return ClientView(refusal.status, refusal.headers, (encode_json(refusal.body),), [])
        given = answer(ReceivedCall(there.json(), there.model, there.stream))
        way_back: dict[str, Any] = {"source": call.provider, "target": call.protocol, "request": body, **outside}
        if given.stream:
            return self._send_stream(call, Stream(**way_back), given, there)
        text = "".join(given.pieces).encode()
        if given.status < 400:
            back = translate(text, "response", **way_back)
        else:
            back = translate(text, "error", status=given.status, headers=given.headers, **way_back)
        return ClientView(
            back.status, back.headers, (back.body.decode(),), _losses_as_objects((*there.losses, *back.losses))
        )

    def _send_stream(self, call: ClientCall, stream: Stream, answer: ProviderAnswer, there: Translation) -> ClientView:
        encode = PEERS[call.provider].http.framing.encode
        decoder = PEERS[call.protocol].http.framing.make_decoder() if call.protocol in PEERS else SSE.make_decoder()
        out = [_feed_stream(stream, encode(piece), answer.bytewise) for piece in answer.pieces]
        pieces = [decoder.decode(piece) for piece in (*out, stream.close())]
        return ClientView(200, {}, tuple(pieces), _losses_as_objects((*there.losses, *stream.losses)))


def _feed_stream(stream: Stream, data: bytes, bytewise: bool) -> bytes:
    size = 1 if bytewise else max(1, len(data))
    return b"".join(stream.feed(data[at : at + size]) for at in range(0, len(data), size))


def _losses_as_objects(losses: Sequence[Loss]) -> list[Json]:
    return [to_builtins(loss) for loss in losses]
