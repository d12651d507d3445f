"""One conversation with two parallel tool calls, streamed, from a client of each protocol to a provider of each: the
real gateway and the embedded model as a provider, each on a port of this machine, with all that is sent recorded."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files

from msgspec import Struct

from toolwire.core.codec import Codec
from toolwire.core.events import fold
from toolwire.core.ir import Call, Failure, Part, Request, Response, Result, Role, Text, Tool, Turn, plain_text
from toolwire.core.json_values import Json, Object, decode, decode_object_or_none, encode, parse_object
from toolwire.core.losses import Ledger
from toolwire.gateway.app import Gateway, app
from toolwire.gateway.exchange.headers import LOSSES_HEADER
from toolwire.gateway.http.client import UpstreamClient
from toolwire.gateway.http.client_request import ClientRequest
from toolwire.gateway.http.connection import TransportError
from toolwire.gateway.http.headers import REQUEST_ID_HEADER
from toolwire.gateway.http.messages import UpstreamRequest
from toolwire.gateway.http.server import HttpServer
from toolwire.gateway.models.loopback.model import answer_request
from toolwire.gateway.settings.address import Address
from toolwire.gateway.settings.config import Config, Provider, ServerSettings, StoreSettings
from toolwire.gateway.settings.providers import DEMO_PROTOCOLS
from toolwire.gateway.surfaces.routes import ProtocolDetector
from toolwire.protocols import find_codec

PROMPT = "What is the weather in Paris and London?"
TOOL = Tool(
    "get_weather",
    "The weather in a city now.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
WEATHER = {"Paris": "15 degrees, light rain", "London": "12 degrees, fog"}
MAX_BYTES = 1024 * 1024
SECRET_VARIABLE = "TOOLWIRE_DEMO_SECRET"
_BACKLOG = 16


@cache
def planted_fields() -> Mapping[str, Object]:
    """By the protocol of the client; see `demo_fields.toml`."""
    return tomllib.loads(files("toolwire.gateway.models.loopback").joinpath("demo_fields.toml").read_text("utf-8"))


class RecordedExchange(Struct):
    """One request and its answer, on both sides of the gateway."""

    client_body: Json
    client_stream: bytes = b""
    provider_path: str = ""
    provider_body: Json = None
    provider_stream: bytes = b""
    losses: str = ""
    """The header `x-toolwire-losses`."""


class PlayedConversation(Struct, frozen=True):
    client: str
    provider: str
    exchanges: tuple[RecordedExchange, ...]
    calls: tuple[Call, ...]
    text: str
    problem: str
    """What went wrong; "" if all calls and results arrived."""
    seconds: float


class DemoProvider:
    """The embedded model as a provider that speaks every protocol over HTTP."""

    def __init__(self) -> None:
        self._detector = ProtocolDetector()
        self.received: tuple[str, Json] = ("", None)
        self.sent = b""

    async def handle_request(self, request: ClientRequest) -> None:
        found = self._detector.find_endpoint(request.path, request.query)
        body = await request.read_body(MAX_BYTES)
        if found is None or isinstance(body, Failure):
            await request.start_response(404, {"content-length": "0"})
            await request.send_body(b"", more=False)
            return
        codec, endpoint = found
        parsed = parse_object(body)
        self.received = (request.path, parsed)
        stream = bool(parsed.get("stream")) if endpoint.stream is None else endpoint.stream
        model = endpoint.model or str(parsed.get("model", ""))
        answer = answer_request(codec, body, model, stream, int(time.time()))
        self.sent = b"".join(answer.pieces)
        await request.start_response(answer.status, {**answer.headers, "transfer-encoding": "chunked"})
        while answer.pieces:
            await request.send_body(answer.pieces.popleft(), more=True)
        await request.send_body(b"", more=False)

    async def answer_error(self, request: ClientRequest, error: BaseException) -> None:
        raise error


class DemoServers:
    """The gateway and the provider, while they run."""

    def __init__(self, client: UpstreamClient, gateway_port: int, provider: DemoProvider) -> None:
        self._client, self._provider = client, provider
        self.origin = f"http://127.0.0.1:{gateway_port}"
        self._address = Address.parse(self.origin)

    async def play(self, client: str, provider: str) -> PlayedConversation:
        """The whole conversation: question, two calls, two results, answer."""
        codec, model, started = find_codec(client), f"demo-{provider}", time.monotonic()
        turns: tuple[Turn, ...] = (Turn("user", (Text(PROMPT),)),)
        first, response = await self._exchange(codec, model, turns, 1)
        calls = tuple(part for part in _parts(response) if isinstance(part, Call))
        turns += (Turn("assistant", _parts(response)), *_result_turns(codec, calls))
        second, answer = await self._exchange(codec, model, turns, 2)
        text = plain_text(_parts(answer))
        problem = _find_problem(response, calls) or _find_missing_result(answer, text)
        seconds = time.monotonic() - started
        return PlayedConversation(client, provider, (first, second), calls, text, problem, seconds)

    async def _exchange(
        self, codec: Codec, model: str, turns: tuple[Turn, ...], number: int
    ) -> tuple[RecordedExchange, Response | str]:
        """Send the conversation so far, and read the streamed answer; a text says why there is none."""
        request = Request(model=model, stream=True, turns=turns, tools=(TOOL,))
        body = {**codec.write_request(request, Ledger(codec.name, codec.name)), **planted_fields()[codec.name]}
        recorded = RecordedExchange(decode(encode(body)))
        headers = {
            "content-type": "application/json",
            # The same id each time, because ids in answers are derived from it.
            REQUEST_ID_HEADER: f"demo-{number}",
            **dict(codec.http.extra_headers(model, b"", {})),
        }
        path = codec.http.request_path(model, True)
        sent = UpstreamRequest(self._address, "POST", path, tuple(headers.items()), encode(body))
        response = await self._client.send_request(sent)
        if isinstance(response, TransportError):
            return recorded, response.detail
        data = await response.read(MAX_BYTES)
        if isinstance(data, TransportError):
            return recorded, data.detail
        recorded.client_stream, recorded.losses = data, response.headers.get(LOSSES_HEADER, "")
        recorded.provider_path, recorded.provider_body = self._provider.received
        recorded.provider_stream = self._provider.sent
        if response.status != 200:
            return recorded, f"the gateway answered with {response.status}: {data[:200].decode(errors='replace')}"
        reader = codec.make_stream_reader()
        return recorded, fold([*reader.feed(data), *reader.close()])


def _parts(response: Response | str) -> tuple[Part, ...]:
    return response.choices[0].parts if isinstance(response, Response) and response.choices else ()


def _result_turns(codec: Codec, calls: tuple[Call, ...]) -> tuple[Turn, ...]:
    results = [Result(call.id, (Text(WEATHER.get(_city(call), "unknown")),), name=call.name) for call in calls]
    role: Role = "user" if codec.constraints.result_placement == "user" else "tool"
    if role == "user":
        return (Turn(role, tuple(results)),)
    return tuple(Turn(role, (result,)) for result in results)


def _city(call: Call) -> str:
    return str((decode_object_or_none(call.arguments) or {}).get("city", ""))


def _find_problem(response: Response | str, calls: tuple[Call, ...]) -> str:
    if isinstance(response, str):
        return response
    if response.failure is not None:
        return response.failure.message
    cities = [_city(call) for call in calls]
    return "" if cities == [*WEATHER] else f"calls for {', '.join(cities) or 'nothing'} instead of {', '.join(WEATHER)}"


def _find_missing_result(answer: Response | str, text: str) -> str:
    if isinstance(answer, str):
        return answer
    missing = [city for city, weather in WEATHER.items() if weather not in text]
    return f"the answer does not know the weather in {', '.join(missing)}" if missing else ""


# --- the servers ---


def _demo_config(provider_port: int) -> Config:
    url = f"http://127.0.0.1:{provider_port}"
    names = {f"demo-{protocol}": protocol for protocol in DEMO_PROTOCOLS}
    providers = {
        name: Provider(name=name, protocols=(protocol,), base_urls={protocol: url}, models=(name,))
        for name, protocol in names.items()
    }
    server = ServerSettings(port=0, log_format="none", log_level="error", secret_env=SECRET_VARIABLE)
    return Config(server=server, providers=providers, store=StoreSettings(url="none"))


def _open_port() -> socket.socket:
    bound = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    bound.setblocking(False)
    return bound


@asynccontextmanager
async def start_demo_servers() -> AsyncIterator[DemoServers]:
    """The gateway and the provider on free ports of this machine. They read no configuration and store nothing."""
    os.environ.setdefault(SECRET_VARIABLE, secrets.token_hex(32))
    provider = DemoProvider()
    with _open_port() as provider_port, _open_port() as gateway_port:
        gateway: Gateway = app(_demo_config(provider_port.getsockname()[1]))
        provider_server = HttpServer(provider.handle_request, provider.answer_error)
        gateway_server = HttpServer(gateway.handle_request, gateway.answer_internal_error, gateway.admission)
        gateway.open()
        await provider_server.listen(provider_port, _BACKLOG)
        await gateway_server.listen(gateway_port, _BACKLOG)
        client = UpstreamClient(gateway.config.server.timeouts)
        try:
            yield DemoServers(client, gateway_port.getsockname()[1], provider)
        finally:
            await client.close()
            await gateway_server.close(1)
            await gateway.close(force=True)
            await provider_server.close(1)
            await asyncio.sleep(0)  # transports close in the next iteration of the loop
