"""The transport through a gateway, whatever it is: the client on one side, the scripted provider on the other, real
sockets on both. A gateway that hangs costs its play, never the run."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote, urlsplit

from toolwire.conformance.dialects import DIALECTS
from toolwire.conformance.frames import compact
from toolwire.conformance.packing import PACKERS
from toolwire.conformance.player import Answerer, Asked, Seen
from toolwire.conformance.stage import Audience, Stage
from toolwire.conformance.targets.target import Route

Json: TypeAlias = Any
Router: TypeAlias = Callable[[str, str, str], Route | str]
"""From the client's protocol, the provider's and the model: what to ask for, or why that cannot be had."""

PATIENCE = 20.0
QUIET = 1.0
KEY = "conformance"


class OverHttp:
    """Carries the player's calls through the gateway at a URL."""

    def __init__(self, url: str, stage: Stage, router: Router, *, patience: float = PATIENCE, key: str = KEY) -> None:
        self._place = urlsplit(url)
        self._stage = stage
        self._router = router
        self._patience = patience
        self._key = key
        self._late = f"the answer has no end within {patience:g} seconds"

    def send(self, asked: Asked, answer: Answerer) -> Seen:
        route = self._router(asked.protocol, asked.provider, asked.model)
        if isinstance(route, str):
            return Seen(501, {}, (route,))
        audience = Audience()
        with self._stage.playing(asked.provider, answer, audience) as elsewhere:
            status, headers, trouble = self._asked(asked, route, audience)
        if trouble == self._late:
            self._stage.settle(min(QUIET, self._patience))
        if asked.leaves and self._stage.lingering:
            trouble = trouble or "the gateway still listens to the provider after its client has left"
        if elsewhere:
            trouble = trouble or f"the gateway asked the provider at {elsewhere[0]}, which is another protocol's path"
        return Seen(status, headers, audience.pieces(), None, trouble)

    def _asked(self, asked: Asked, route: Route, audience: Audience) -> tuple[int, Mapping[str, str], str]:
        """Send the call and hear its answer to the end: status, headers, and what went wrong."""
        deadline = time.monotonic() + self._patience
        status, headers = 0, dict[str, str]()
        path, sent, body = self._call(asked, route)
        connection = self._connection()
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
                    if audience.hear(data, asked.leaves):
                        return status, headers, ""
        except TimeoutError:
            return status, headers, self._late
        except (OSError, http.client.HTTPException) as error:
            return status, headers, f"the connection to the gateway broke: {error!r}"
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._place.scheme == "https" else http.client.HTTPConnection
        return kind(self._place.netloc, timeout=self._patience)

    def _call(self, asked: Asked, route: Route) -> tuple[str, dict[str, str], bytes]:
        """Path, headers and body, as this protocol's SDK makes them."""
        wire = DIALECTS[asked.protocol].wire
        path = wire.asks[asked.asks] if asked.asks else (asked.stream and wire.stream_path) or wire.path
        name, value = wire.credential
        headers = {"content-type": "application/json", name: value.format(key=self._key), **wire.headers}
        headers |= {name.lower(): value for name, value in route.headers.items()}
        headers |= {"content-encoding": asked.encoding} if asked.encoding else {}
        body = asked.body
        if wire.in_body and isinstance(body, dict):
            body = {**body, "model": route.model} | ({"stream": True} if asked.stream else {})
        base = self._place.path.rstrip("/").removesuffix("/v1")
        data = PACKERS[asked.encoding](compact(body).encode())
        return base + path.replace("{model}", quote(route.model, safe="/@")), headers, data
