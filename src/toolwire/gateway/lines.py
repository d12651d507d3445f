"""Lines to providers: all about a call that is the same every time, worked out once for each configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from toolwire import __version__, ids
from toolwire.gateway.access import Access
from toolwire.gateway.settings.config import Config, Provider
from toolwire.gateway.settings.routing import Router, Target, rooms_for
from toolwire.gateway.upstream.client import Address
from toolwire.options import Options
from toolwire.policy.match import Policy
from toolwire.protocols import ROOMS
from toolwire.room import Room

Headers = tuple[tuple[str, str], ...]
_REMEMBERED = 2048
_SETS = 256
"""Sets of header names that are remembered, each of no more letters than `_REMEMBERED`."""


class Line(Struct, frozen=True, eq=False):
    """One way to ask one provider for one model in one protocol."""

    provider: Provider
    room: Room
    model: str
    stream: bool
    max_output_tokens: int | None
    passes: bool
    """May a request of its protocol pass as it is? Not where there are quirks, or a limit to put in."""
    address: Address | None
    """None for the embedded model."""
    server: str
    """Host and port, for the log."""
    path: str
    headers: Mapping[str, str]
    maker: str
    stamps: bool
    """Do several accounts make seals of this protocol, so that each must bear its maker's name?"""
    options: Options = Options()
    """Those of its translations, as far as they are the same for every call."""
    keeping: Options = Options()
    """The same for calls for which something may be kept."""
    guarded: bool = False
    """Is a key missing, or wanted from the client?"""


class Names:
    """A table of header names in which some stand for all that begin so. A peer sends the same ones again and again,
    so sets of them that were met are remembered."""

    __slots__ = ("_beginnings", "_exact", "_met")

    def __init__(self, table: Iterable[str]) -> None:
        listed = list(table)
        self._exact = frozenset(name for name in listed if not name.endswith("*"))
        self._beginnings = tuple(name[:-1] for name in listed if name.endswith("*"))
        self._met: dict[tuple[str, ...], tuple[str, ...]] = {}

    def has(self, name: str) -> bool:
        return name in self._exact or name.startswith(self._beginnings)

    def among(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Those of the headers that the table names."""
        names = tuple(headers)
        found = self._met.get(names)
        if found is None:
            found = self._find(names)
        some: dict[str, str] = {}
        for name in found:  # a comprehension would be a call of its own
            some[name] = headers[name]
        return some

    def _find(self, names: tuple[str, ...]) -> tuple[str, ...]:
        found = tuple(filter(self.has, names))
        if sum(map(len, names)) <= _REMEMBERED:
            if len(self._met) >= _SETS:
                self._met.clear()
            self._met[names] = found
        return found


class State:
    """A configuration at work. A new one gets a new state; exchanges under way keep theirs."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.cancels = config.server.on_client_gone == "cancel"
        """Does a client that leaves cancel what is done for it?"""
        self.router = Router(config)
        self.access = Access(config.server)
        self.policy = Policy(config.policy)
        self.forwarded = {room.name: Names(room.http.forwarded) for room in ROOMS.values()}
        self.answered = {room.name: Names(room.http.answered) for room in ROOMS.values()}
        self._stamped = _several(config)
        self._lines: dict[tuple[Provider, str, Room, bool, int | None], Line] = {}
        self._between: dict[tuple[Room, Target, bool], tuple[Line, Line]] = {}
        self._addresses: dict[tuple[Provider, str], Address] = {}

    def between(self, client: Room, target: Target, stream: bool, tools: Callable[[], bool]) -> Line:
        """The line for a client's call."""
        key = (client, target, stream)
        found = self._between.get(key)
        if found is None:
            if len(self._between) >= _REMEMBERED:
                self._between.clear()
            with_tools, without = rooms_for(target, client)
            found = self.line(target, with_tools, stream), self.line(target, without, stream)
            self._between[key] = found
        # Most bodies need not be looked into.
        return found[0] if found[0] is found[1] or tools() else found[1]

    def line(self, target: Target, room: Room, stream: bool) -> Line:
        key = (target.provider, target.model, room, stream, target.max_output_tokens)
        found = self._lines.get(key)
        if found is None:
            if len(self._lines) >= _REMEMBERED:
                self._lines.clear()
            found = self._lines[key] = self._line(target, room, stream)
        return found

    def _line(self, target: Target, room: Room, stream: bool) -> Line:
        provider, model = target.provider, target.model
        limit = target.max_output_tokens
        passes = ROOMS[room.name] is room and limit is None
        maker = f"{room.name}/{provider.name}/{ids.digest(provider.api_key.reveal(), 8)}"
        stamps = room.name in self._stamped and not provider.embedded
        options = self._options(model, stream, limit, maker, stamps)
        guarded = provider.key_missing or provider.forward_auth
        if provider.embedded:
            address, peer, path, fixed = None, "", "", {}
        else:
            address = self.address(provider, room.name)
            peer, path, fixed = address.peer, room.http.path(model, stream), self.fixed(provider, room)
        return Line(
            provider, room, model, stream, limit, passes, address, peer, path, fixed, maker, stamps, *options, guarded
        )

    def _options(
        self, model: str, stream: bool, limit: int | None, maker: str, stamps: bool
    ) -> tuple[Options, Options]:
        """Without and with something kept."""
        translate = self.config.translate
        options = Options(
            model=model,
            stream=stream,
            binary_results=translate.binary_results,
            cache_breakpoints=translate.cache_breakpoints,
            max_output_tokens=limit,
            max_bytes=self.config.server.max_body,
            maker=maker,
            stamps=stamps,
        )
        return options, replace(options, keeps=True)

    def address(self, provider: Provider, protocol: str) -> Address:
        key = (provider, protocol)
        found = self._addresses.get(key)
        if found is None:
            url, proxy = provider.base_urls[protocol], provider.proxies.get(protocol, "")
            found = self._addresses[key] = Address.parse(url, proxy, provider.ca_file)
        return found

    @staticmethod
    def fixed(provider: Provider, room: Room) -> dict[str, str]:
        """Headers that every call bears; what the operator sets comes last and wins."""
        headers = {"content-type": "application/json", "user-agent": f"toolwire/{__version__}"}
        credential = provider.credential(room.http)
        if credential is not None:
            headers[credential[0]] = credential[1]
        headers.update({name.lower(): value for name, value in provider.headers.items()})
        return headers


def _several(config: Config) -> frozenset[str]:
    """The protocols whose seals more than one account makes."""
    speakers = Counter(
        protocol
        for provider in config.providers.values()
        if not provider.embedded and not provider.key_missing
        for protocol in provider.protocols
    )
    return frozenset(name for name, count in speakers.items() if count > 1 and ROOMS[name].rules.seals)
