"""The transport that uses the library: no gateway, no sockets, one translation there and one back."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from msgspec import to_builtins

from toolwire import Loss, Malformed, Refused, Stream, Translation, translate
from toolwire.conformance.expectations import Json
from toolwire.conformance.peers import PEERS
from toolwire.conformance.player import AnswerCall, ClientCall, ClientView, ProviderAnswer, ReceivedCall
from toolwire.conformance.scripted_provider import ProviderServer, ReceivedText
from toolwire.conformance.targets.target import Route
from toolwire.conformance.wire_encoding import COMPRESSORS, encode_json
from toolwire.core.ir import Failure
from toolwire.protocols import find_codec

NOW = 1767225600


class InProcessTransport:
    """Translates with the library; bodies travel as bytes, as they would over HTTP."""

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        body = encode_json(call.body).encode()
        outside: dict[str, Any] = {"model": call.model, "stream": call.stream, "now": NOW}
        try:
            there = translate(body, "request", source=call.protocol, target=call.provider, **outside)
        except (Malformed, Refused) as error:
            sent = find_codec(call.protocol).write_error(Failure("invalid", str(error), 400))
            return ClientView(sent.status, sent.headers, (encode_json(sent.body),), [])
        given = answer(ReceivedCall(there.json(), there.model, there.stream))
        way_back: dict[str, Any] = {"source": call.provider, "target": call.protocol, "request": body, **outside}
        if given.stream:
            return self._send_stream(Stream(**way_back), given, there)
        text = "".join(given.pieces).encode()
        if given.status < 400:
            back = translate(text, "response", **way_back)
        else:
            back = translate(text, "error", status=given.status, headers=given.headers, **way_back)
        return ClientView(
            back.status, back.headers, (back.body.decode(),), _losses_as_objects((*there.losses, *back.losses))
        )

    def _send_stream(self, stream: Stream, answer: ProviderAnswer, there: Translation) -> ClientView:
        pieces = [_feed_stream(stream, piece.encode(), answer.bytewise) for piece in answer.pieces]
        pieces.append(stream.close().decode())
        return ClientView(200, {}, tuple(pieces), _losses_as_objects((*there.losses, *stream.losses)))


def _feed_stream(stream: Stream, data: bytes, bytewise: bool) -> str:
    size = 1 if bytewise else max(1, len(data))
    return b"".join(stream.feed(data[at : at + size]) for at in range(0, len(data), size)).decode()


def _losses_as_objects(losses: Sequence[Loss]) -> list[Json]:
    return [to_builtins(loss) for loss in losses]


Router: TypeAlias = Callable[[str, str, str], Route | str]
"""From the client's protocol, the provider's and the model: what to ask for, or why that cannot be had."""

ANSWER_TIMEOUT = 20.0
QUIET_SECONDS = 1.0
CLIENT_KEY = "conformance"


class HttpTransport:
    """Carries the player's calls through the gateway at a URL."""

    def __init__(
        self,
        url: str,
        provider: ProviderServer,
        router: Router,
        *,
        timeout: float = ANSWER_TIMEOUT,
        key: str = CLIENT_KEY,
    ) -> None:
        self._url = urlsplit(url)
        self._provider = provider
        self._router = router
        self._timeout = timeout
        self._key = key
        self._timeout_text = f"the answer has no end within {timeout:g} seconds"

    def send_call(self, call: ClientCall, answer: AnswerCall) -> ClientView:
        route = self._router(call.protocol, call.provider, call.model)
        if isinstance(route, str):
            return ClientView(501, {}, (route,))
        audience = ReceivedText()
        with self._provider.serve_play(call.provider, answer, audience) as elsewhere:
            status, headers, trouble = self._exchange_call(call, route, audience)
        if trouble == self._timeout_text:
            self._provider.wait_until_quiet(min(QUIET_SECONDS, self._timeout))
        if call.leaves and self._provider.has_lingering_calls:
            trouble = trouble or "the gateway still listens to the provider after its client has left"
        if elsewhere:
            trouble = trouble or f"the gateway asked the provider at {elsewhere[0]}, which is another protocol's path"
        return ClientView(status, headers, audience.pieces(), None, trouble)

    def _exchange_call(
        self, call: ClientCall, route: Route, received: ReceivedText
    ) -> tuple[int, Mapping[str, str], str]:
        """Send the call and hear its answer to the end: status, headers, and what went wrong."""
        deadline = time.monotonic() + self._timeout
        status, headers = 0, dict[str, str]()
        path, sent, body = self._write_call(call, route)
        connection = self._make_connection()
        try:
            connection.connect()
            socket = connection.sock
            connection.request("POST", path, body, sent)
            with connection.getresponse() as response:
                status, headers = response.status, dict(response.getheaders())
                while True:
                    socket.settimeout(max(0.01, deadline - time.monotonic()))
                    if not (data := response.read1(65536)):
                        return status, headers, ""
                    if received.add_data(data, call.leaves):
                        return status, headers, ""
        except TimeoutError:
            return status, headers, self._timeout_text
        except (OSError, http.client.HTTPException) as error:
            return status, headers, f"the connection to the gateway broke: {error!r}"
        finally:
            connection.close()

    def _make_connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
        return kind(self._url.netloc, timeout=self._timeout)

    def _write_call(self, call: ClientCall, route: Route) -> tuple[str, dict[str, str], bytes]:
        """Path, headers and body, as this protocol's SDK makes them."""
        wire = PEERS[call.protocol].http
        path = wire.other_paths[call.asks] if call.asks else (call.stream and wire.stream_path) or wire.path
        name, value = wire.credential
        headers = {"content-type": "application/json", name: value.format(key=self._key), **wire.headers}
        headers |= {name.lower(): value for name, value in route.headers.items()}
        headers |= {"content-encoding": call.encoding} if call.encoding else {}
        body = call.body
        if wire.has_model_in_body and isinstance(body, dict):
            body = {**body, "model": route.model} | ({"stream": True} if call.stream else {})
        base = self._url.path.rstrip("/").removesuffix("/v1")
        data = COMPRESSORS[call.encoding](encode_json(body).encode())
        return base + path.replace("{model}", quote(route.model, safe="/@")), headers, data
