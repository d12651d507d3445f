"""What state needs of the rest of the gateway: to ask providers as any request does."""

from __future__ import annotations

from typing import Protocol

from toolwire.gateway.call import Call, Flow, Refusal, Reply
from toolwire.gateway.settings.routing import Target


class Outflow(Protocol):
    """Where a stream goes."""

    def put(self, data: bytes) -> bool: ...

    async def drained(self) -> None: ...

    async def end(self) -> None: ...

    def close(self) -> None: ...


class Engine(Protocol):
    async def ask(self, call: Call, targets: tuple[Target, ...]) -> Reply | Flow | Refusal:
        """An answer, or the start of one, from the first target that has one."""

    async def relay(self, call: Call, flow: Flow, outflow: Outflow) -> None:
        """The rest of a stream."""

    async def native(self, call: Call, target: Target, path: str) -> Reply | None:
        """What a provider of the client's own protocol says to these bytes at this path; None when it does not have
        the path."""

    def read(self, call: Call, body: bytes) -> bool:
        """Take a body as what the call asks for; False when it is none."""

    def targets(self, call: Call) -> tuple[Target, ...] | Refusal:
        """Where the model is that the call asks for."""

    def detached(self, call: Call) -> None:
        """From here on nobody waits for this call: it gets a record of its own."""

    def over(self, call: Call) -> None:
        """A detached call has ended."""

    def fault(self, error: BaseException) -> None:
        """Something of our own broke where nobody could be told."""
