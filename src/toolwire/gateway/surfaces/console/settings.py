"""`[console]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from msgspec import Struct

from toolwire.gateway.settings.address import is_loopback
from toolwire.gateway.settings.client_keys import check_separate_key
from toolwire.gateway.settings.config import Positive, Section, SectionInput, ServerSettings


class ConsoleSettings(Section, frozen=True, kw_only=True):
    """The console, a page at `/` that shows both sides of the recent requests. They are kept in memory only."""

    enabled: bool = True
    """With client keys, or on an address that other machines reach, the console also needs `sha256`; without it, it is
    off."""
    sha256: str = ""
    """The SHA-256 hash of the console's own key, as in `[[server.keys]]`. Whoever has this key sees what all clients
    send and get. Client keys do not open the console."""
    max_bytes: Positive = 64 * 1024 * 1024
    """Memory for what they sent and got, of all workers together. At most the last 1000 are kept."""

    @classmethod
    def list_tables(cls) -> Mapping[str, type[Struct]]:
        return {"[console]": cls}

    @classmethod
    def read(cls, source: SectionInput) -> Self:
        console, server, place = super().read(source), source.config.server, source.collector.at("console")
        client_hint = "create another one: this key shows what all clients send and get"
        check_separate_key(console.sha256.lower(), server, place.at("sha256"), client_hint)
        table = source.tables.get("console")
        is_asked = isinstance(table, dict) and table.get("enabled") is True
        if is_asked and not console.sha256 and (server.needs_keys or not is_loopback(server.host)):
            what = "with client keys, or for other machines, the console needs a key of its own"
            place.at("enabled").add(what, "`toolwire keys new NAME --console --write` adds one")
        return console

    def is_on(self, server: ServerSettings) -> bool:
        """Without a key of its own it is on only where no one else can reach it."""
        is_private = is_loopback(server.host) and not server.needs_keys and not server.allowed_hosts
        return self.enabled and (bool(self.sha256) or is_private)
