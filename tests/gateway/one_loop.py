"""The gateway and its clients in the event loop of the test, so that a test can look at what the gateway holds. The
provider is a thread that plays bytes."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from gateway.raw_exchange import RawProvider, Scene, configuration, path_of, request_of
from gateway.raw_server import RawConnection, ServerUnderTest, run_server
from toolwire.gateway.app import Gateway
from toolwire.gateway.configuration.live_config import LiveConfig
from toolwire.gateway.http.connection import UpstreamConnection
from toolwire.gateway.telemetry.telemetry import Telemetry
from toolwire_conformance.peers.peer import encode_json


def post(protocol: str, model: str, stream: bool, *lines: str, **more: Any) -> bytes:
    """A request as bytes; `lines` are further headers."""
    return post_body(path_of(protocol, model, stream), encode_json(request_of(protocol, model, stream, **more)), *lines)


def post_body(path: str, body: str | bytes, *lines: str) -> bytes:
    data = body.encode() if isinstance(body, str) else body
    head = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", *lines]
    return "\r\n".join([*head, f"content-length: {len(data)}", "", ""]).encode() + data


class GatewayInLoop:
    def __init__(self, gateway: Gateway, made: ServerUnderTest, wire: RawProvider) -> None:
        self.gateway = gateway
        self.made = made
        self.wire = wire

    def scene(self, protocol: str, *plays: Any) -> Scene:
        return self.wire.scene(protocol, *plays)

    async def ask(self, request: bytes, *, small: bool = False) -> RawConnection:
        talk = self.made.connect_client(small=small)
        await talk.send(request)
        return talk

    @property
    def upstream_connections(self) -> list[UpstreamConnection]:
        client = self.gateway._client
        return [one for pool in client._pools.values() for one in pool.all_connections] if client is not None else []


@asynccontextmanager
async def gateway_in_loop(folder: Path, server: str = "") -> AsyncIterator[GatewayInLoop]:
    wire = RawProvider()
    file = folder / "toolwire.toml"
    # The console would keep the traffic that tests of memory measure; it has its own limit.
    file.write_text(configuration(wire, server, '[store]\nurl = "none"\n[console]\nenabled = false\n'))
    live = LiveConfig(file, {"HOME": os.devnull}, lambda found: None)
    gateway = Gateway(live, Telemetry(live.current.server, lambda text: None))
    with closing(wire):
        async with run_server(gateway.handle_request, gateway.admission) as made:
            try:
                yield GatewayInLoop(gateway, made, wire)
                made.leave_all()
                await made.wait_until_empty()
            finally:
                await gateway.close()
    assert not wire.faults
