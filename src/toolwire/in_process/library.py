"""The HTTP library of a program: httpx2, which the SDKs use, or httpx, which some frameworks still use. Both have the
same interface; nothing else here depends on which one it is."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from msgspec import Struct

if TYPE_CHECKING:  # a program has one of them
    import httpx2

LibraryName: TypeAlias = Literal["httpx2", "httpx"]
MISSING: Final[Mapping[LibraryName, str]] = {
    "httpx2": 'openai 3, anthropic 2 and google-genai 3 bring it; for an older SDK write library="httpx"',
    "httpx": 'current SDKs use httpx2, which is the default; leave out library="httpx"',
}


class HttpLibrary(Struct, frozen=True):
    """The classes of one of the two. Those of httpx are typed as their twins in httpx2."""

    client: type[httpx2.Client]
    async_client: type[httpx2.AsyncClient]
    transport: type[httpx2.BaseTransport]
    async_transport: type[httpx2.AsyncBaseTransport]
    stream: type[httpx2.SyncByteStream]
    async_stream: type[httpx2.AsyncByteStream]
    request: type[httpx2.Request]
    response: type[httpx2.Response]
    timeout: type[httpx2.Timeout]
    limits: type[httpx2.Limits]
    invalid_url: type[httpx2.InvalidURL]
    http_error: type[httpx2.HTTPError]
    late_answer: type[httpx2.TimeoutException]
    broken_answer: type[httpx2.RemoteProtocolError]


def load_library(name: LibraryName) -> HttpLibrary:
    if name not in get_args(LibraryName):
        raise TypeError(f"`library` is {' or '.join(map(repr, get_args(LibraryName)))}, not {name!r}")
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ModuleNotFoundError(f"{name} is not installed: {MISSING[name]}", name=name) from None
    return HttpLibrary(
        module.Client,
        module.AsyncClient,
        module.BaseTransport,
        module.AsyncBaseTransport,
        module.SyncByteStream,
        module.AsyncByteStream,
        module.Request,
        module.Response,
        module.Timeout,
        module.Limits,
        module.InvalidURL,
        module.HTTPError,
        module.TimeoutException,
        module.RemoteProtocolError,
    )
