"""One exchange, as it is seen from outside: filled in while it runs, read once when it ends."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from toolwire.core.ir import Call, Result, Usage
from toolwire.core.losses import Ledger, Loss
from toolwire.gateway.telemetry.capture import ExchangeCapture


class ExchangeRecord(msgspec.Struct, kw_only=True, gc=False, eq=False):
    """Times are seconds of the caller's own monotonic clock; only `wall` is the time of day. No key, no header."""

    request_id: str
    started: float
    started_at: float
    """Unix time of the start."""
    peer: str = ""
    method: str = ""
    path: str = ""
    """As it came: its query is cut off before anything is written."""
    key_name: str = ""
    """The name of the client's key, never the key."""
    agent: str = ""
    """The user agent as it came; the line shows its first product."""
    source: str = ""
    """The client's protocol."""
    target: str = ""
    """The provider's protocol."""
    provider: str = ""
    upstream_address: str = ""
    """The provider's `host:port`."""
    verb: str = "chat"
    """What was asked for: chat, count, models, metrics, pass. Only a chat has times and tokens in the metrics."""
    requested_model: str = ""
    """The model as the client named it."""
    model: str = ""
    """The model as the provider was asked for it."""
    response_model: str = ""
    """The model as the answer names it."""
    stream: bool = False
    is_passthrough: bool = False
    """Did the bytes pass untouched?"""
    status: int = 0
    """As the client saw it; 0 when it saw none."""
    failure: str = ""
    """The kind of failure, one of `ir.FAILURES`; also of one in the middle of a stream."""
    first_byte: float = 0.0
    """When the first byte of the answer went to the client; 0 for never."""
    ended: float = 0.0
    usage: Usage | None = None
    estimated: bool = False
    """Is the usage a local estimate?"""
    finish_reasons: tuple[str, ...] = ()
    losses: tuple[str, ...] = ()
    """The codes of what was lost in translation."""
    ledgers: tuple[Ledger | None, ...] = ()
    """Where they stand in full: spelled only when somebody reads it."""
    attempts: list[tuple[str, str, float]] = msgspec.field(default_factory=list)
    """Tries at providers: which one, what came of it ("ok", a status, the kind of a fault), seconds."""
    calls: list[tuple[str, str]] = msgspec.field(default_factory=list)
    """Calls that were run here and not by the client, and what came of them."""
    client_disconnected: bool = False
    """Did the client leave?"""
    upstream_id: str = ""
    """The provider's own id of the request."""
    bytes_in: int = 0
    bytes_out: int = 0
    note: str = ""
    request_body: bytes = b""
    """The bodies only where `Telemetry.bodies` asks for them."""
    response_body: bytes = b""
    capture: ExchangeCapture | None = None
    """All that was said on both sides, only where `Telemetry.debug` asks for it."""
    span: object = None
    """Belongs to the tracer."""

    def __repr__(self) -> str:
        """Neither bodies nor a path whose query may hold a key."""
        return f"Record({self.request_id!r}, {self.provider!r}, {self.model!r}, {self.status})"

    def add_tool_runs(self, calls: Sequence[Call], results: Sequence[Result]) -> None:
        """Note calls that were run here."""
        for call, result in zip(calls, results, strict=True):
            self.calls.append((call.name, "error" if result.error else "ok"))

    def add_losses(self, codes: tuple[str, ...], *ledgers: Ledger | None) -> None:
        """Note what a translation lost or changed."""
        if codes:
            self.losses, self.ledgers = codes, ledgers

    @property
    def all_losses(self) -> list[Loss]:
        """The losses in full."""
        return [loss for ledger in self.ledgers if ledger is not None for loss in ledger.losses]
