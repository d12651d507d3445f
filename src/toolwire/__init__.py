"""Toolwire translates tool calling between OpenAI, Anthropic and Gemini protocols, and reports every loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from toolwire.core.ir import Tool
from toolwire.core.json_values import Malformed
from toolwire.core.losses import Loss
from toolwire.core.version import VERSION
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation
from toolwire.translation.translate import (
    Refused,
    Stream,
    ToolCall,
    ToolOutput,
    build_tool_results,
    parse_tool_calls,
    translate,
)

if TYPE_CHECKING:  # clients are for programs that have one of these libraries
    from os import PathLike

    import httpx2

    from toolwire.gateway.settings.problems import ConfigError

__all__ = [
    "ConfigError",
    "Exchange",
    "Loss",
    "Malformed",
    "Options",
    "Refused",
    "Stream",
    "StreamTranslation",
    "Tool",
    "ToolCall",
    "ToolOutput",
    "Translation",
    "async_http_client",
    "async_http_transport",
    "build_tool_results",
    "http_client",
    "http_transport",
    "losses",
    "parse_tool_calls",
    "translate",
]

__version__ = VERSION


def http_client(
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    on_losses: Callable[[Sequence[Loss]], None] | None = None,
    record: str | PathLike[str] | None = None,
    replay: str | PathLike[str] | None = None,
    library: Literal["httpx2", "httpx"] = "httpx2",
    **options: Any,
) -> httpx2.Client:
    """An HTTP client for any SDK: its requests are answered by any provider, without a server.

    `config` is a `toolwire.toml` or its tables as a dict; without it, the file that `TOOLWIRE_CONFIG` names, or that of
    the user's own folder, and the keys in the environment. `on_losses` gets what each exchange lost. `record` writes
    the exchanges with providers to a folder, and `replay` answers from such a folder. `options` are those of a client
    of the library (`timeout`, `proxy`, `verify`, …). Raises `ConfigError` if the configuration has errors.
    """
    from toolwire.in_process import client  # noqa: PLC0415 — the gateway takes a tenth of a second to import

    return client.make_client(client.read_settings(config, library, on_losses, record, replay, options))


def async_http_client(
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    on_losses: Callable[[Sequence[Loss]], None] | None = None,
    record: str | PathLike[str] | None = None,
    replay: str | PathLike[str] | None = None,
    library: Literal["httpx2", "httpx"] = "httpx2",
    **options: Any,
) -> httpx2.AsyncClient:
    """The same as `http_client` for async code, in any number of event loops."""
    from toolwire.in_process import client  # noqa: PLC0415 — as above

    return client.make_async_client(client.read_settings(config, library, on_losses, record, replay, options))


def http_transport(
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    on_losses: Callable[[Sequence[Loss]], None] | None = None,
    record: str | PathLike[str] | None = None,
    replay: str | PathLike[str] | None = None,
    library: Literal["httpx2", "httpx"] = "httpx2",
    **options: Any,
) -> httpx2.BaseTransport:
    """The transport of `http_client` alone, for whoever makes the client himself."""
    from toolwire.in_process import client  # noqa: PLC0415 — as above

    return client.make_transport(client.read_settings(config, library, on_losses, record, replay, options))


def async_http_transport(
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    *,
    on_losses: Callable[[Sequence[Loss]], None] | None = None,
    record: str | PathLike[str] | None = None,
    replay: str | PathLike[str] | None = None,
    library: Literal["httpx2", "httpx"] = "httpx2",
    **options: Any,
) -> httpx2.AsyncBaseTransport:
    """The transport of `async_http_client` alone."""
    from toolwire.in_process import client  # noqa: PLC0415 — as above

    return client.make_async_transport(client.read_settings(config, library, on_losses, record, replay, options))


def losses(response: object) -> tuple[Loss, ...]:
    """What an exchange of `http_client` lost or changed: by the response of the HTTP library, or by an SDK's raw
    response, stream or error. Of a stream, when it was read to its end."""
    from toolwire.in_process import client  # noqa: PLC0415 — as above

    return client.find_losses(response)


def __getattr__(name: str) -> Any:
    """`ConfigError`, which clients raise: importing it with the library would import a part of the gateway."""
    if name == "ConfigError":
        from toolwire.gateway.settings.problems import ConfigError  # noqa: PLC0415 — as above

        return ConfigError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
