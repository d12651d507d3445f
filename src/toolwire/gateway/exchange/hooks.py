"""What features give to a request, as interfaces: the pipeline knows these, and no feature. `stages.py` says when it
calls them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias, final

from msgspec import Struct

from toolwire.core.codec import RateLimit
from toolwire.core.ir import Call, Failure, Result, Tool
from toolwire.core.json_values import Json, Object
from toolwire.gateway.http.messages import Reply
from toolwire.gateway.store.store import StoreDown


@final
class Refusal(Struct, frozen=True):
    """Why a feature does not let a request pass."""

    failure: Failure
    rate_limits: tuple[RateLimit, ...] = ()
    """The limits that refused, for the headers of the client's dialect."""
    depends_on_target: bool = False
    """Would another provider or model be allowed?"""


class UsedAmounts(Protocol):
    """What one group of calls has used."""

    @property
    def group(self) -> tuple[str | int, ...]: ...
    @property
    def input(self) -> int: ...
    @property
    def output(self) -> int: ...
    @property
    def cost(self) -> int:
        """In 10⁻¹² USD."""


ReadUsed: TypeAlias = Callable[[tuple[str, ...], int, int], Awaitable[Sequence[UsedAmounts] | StoreDown]]
"""Reads what was used between two times, by these dimensions: a budget goes on where its counter was lost."""


class StreamTap(Protocol):
    """Reads a stream that goes to the client, and holds back its end."""

    @property
    def response(self) -> Object | None:
        """The whole response, once its end has come."""

    def feed(self, data: bytes) -> bytes: ...
    def close(self) -> bytes: ...
    def release(self, changes: Mapping[str, Json]) -> bytes:
        """The end that was held back, with these fields changed."""


class AnswerRecorder(Protocol):
    """Stores an answer, so that a later request can refer to it."""

    def open_tap(self) -> StreamTap: ...
    async def save_reply(self, reply: Reply) -> Reply:
        """Store a whole answer; returns it as the client gets it."""

    async def save_response(self, response: Object) -> Mapping[str, Json]:
        """Store a response that was streamed; returns the fields to change in it."""


class SignatureStore(Protocol):
    """Keeps the seals for which the client's protocol has no slot, and tool calls that the client does not see."""

    has_failed: bool
    """Could a signature not be stored?"""

    async def load_signatures(self, ids: Sequence[str]) -> Mapping[str, bytes] | Failure: ...
    async def save_signatures(self, signatures: Mapping[str, bytes]) -> None: ...


class GatewayTools(Protocol):
    """Tools that the gateway runs itself."""

    tools: tuple[Tool, ...]
    substitutes: Mapping[str, Tool]
    """The substitutes for provider tools, by the provider tool's name."""
    max_rounds: int
    """Further calls are refused after this number of rounds."""

    def call_visibility(self, name: str) -> str: ...
    async def run_calls(self, calls: Sequence[Call]) -> tuple[Result, ...]: ...


class StreamOutput(Protocol):
    """Where a stream goes: to a client, or into the store."""

    def write_nowait(self, data: bytes) -> bool: ...
    async def drain(self) -> None: ...
    async def end(self) -> None: ...
    def close(self) -> None: ...
