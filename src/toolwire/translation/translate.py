"""The public functions of the library: translate one body or one stream from any protocol to any other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from toolwire.core.ir import EMPTY_MAPPING, Failure
from toolwire.core.losses import Loss
from toolwire.protocols import find_codec
from toolwire.translation.body import Body
from toolwire.translation.exchange import Exchange, Translation
from toolwire.translation.options import Options
from toolwire.translation.streaming import StreamTranslation

BodyKind = Literal["request", "response", "error"]


class Refused(Exception):
    """Something would have been lost, and the option `strict` does not allow that."""

    def __init__(self, losses: tuple[Loss, ...]) -> None:
        self.losses = tuple(loss for loss in losses if loss.severity == "lost")
        first = self.losses[0]
        super().__init__(
            f"{len(self.losses)} lost; the first is {first.code} at {first.path or 'the body'}: {first.what}"
        )


def translate(
    body: Body,
    kind: BodyKind,
    *,
    source: str,
    target: str,
    request: Body | None = None,
    headers: Mapping[str, str] = EMPTY_MAPPING,
    **options: Any,
) -> Translation:
    """Translate a request, a whole response or an error body.

    Answers and errors go from the provider (`source`) to the client (`target`). Give the client's own request as
    `request`, so that its tool names and kinds can be restored. Further keywords are those of `Options`. Raises
    `Malformed` for input that cannot be read.
    """
    chosen = build_options(options)
    if kind == "request":
        result = Exchange(find_codec(source), find_codec(target), chosen).translate_request(body)
    else:
        exchange = Exchange(find_codec(target), find_codec(source), chosen)
        if request is not None:
            exchange.remember_request(request)
        if kind == "response":
            result = exchange.translate_response(body)
        elif kind == "error":
            result = exchange.translate_error(body, chosen.status, headers)
        else:
            raise ValueError(f"kind must be request, response or error, not {kind!r}")
    if chosen.strict and any(loss.severity == "lost" for loss in result.losses):
        raise Refused(result.losses)
    return result


class Stream:
    """Translates a provider's stream for a client: `feed` bytes as they come, then `close`. Arguments as
    `translate`."""

    def __init__(self, *, source: str, target: str, request: Body | None = None, **options: Any) -> None:
        exchange = Exchange(find_codec(target), find_codec(source), build_options(options))
        if request is not None:
            exchange.remember_request(request)
        self._stream: StreamTranslation = exchange.start_stream()

    def feed(self, data: bytes) -> bytes:
        return self._stream.feed(data)

    def close(self) -> bytes:
        return self._stream.close()

    @property
    def losses(self) -> tuple[Loss, ...]:
        return self._stream.losses

    @property
    def failure(self) -> Failure | None:
        """Why the stream failed; None as long as it has not."""
        return self._stream.failure


def build_options(given: Mapping[str, Any]) -> Options:
    """Options from keywords. An unknown keyword raises TypeError with a list of all options."""
    unknown = set(given) - set(Options.__struct_fields__)
    if unknown:
        raise TypeError(f"unknown option {min(unknown)!r}; there are {', '.join(Options.__struct_fields__)}")
    return msgspec.convert(dict(given), Options)
