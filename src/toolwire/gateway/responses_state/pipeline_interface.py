"""What state needs of the rest of the gateway: to ask providers as any request does."""

from __future__ import annotations

from typing import Protocol

from toolwire.gateway.pipeline.call import AttemptFailed, GatewayCall, Reply, StartedStream
from toolwire.gateway.pipeline.route import Target


class OutputStream(Protocol):
    """Where a stream goes."""

    def write_nowait(self, data: bytes) -> bool: ...

    async def drain(self) -> None: ...

    async def end(self) -> None: ...

    def close(self) -> None: ...


class Pipeline(Protocol):
    async def request_answer(
        self, call: GatewayCall, targets: tuple[Target, ...]
    ) -> Reply | StartedStream | AttemptFailed:
        """An answer, or the start of one, from the first target that has one."""

    async def relay_stream(self, call: GatewayCall, started: StartedStream, output: OutputStream) -> None:
        """The rest of a stream."""

    async def forward_native(self, call: GatewayCall, target: Target, path: str) -> Reply | None:
        """What a provider of the client's own protocol says to these bytes at this path; None when it does not have
        the path."""

    def load_body(self, call: GatewayCall, body: bytes) -> bool:
        """Take a body as what the call asks for; False when it is none."""

    def route_call(self, call: GatewayCall) -> tuple[Target, ...] | AttemptFailed:
        """Where the model is that the call asks for."""

    def start_background_record(self, call: GatewayCall) -> None:
        """From here on nobody waits for this call: it gets a record of its own."""

    def finish_background_record(self, call: GatewayCall) -> None:
        """A detached call has ended."""

    def report_error(self, error: BaseException) -> None:
        """Something of our own broke where nobody could be told."""
