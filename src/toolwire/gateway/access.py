"""Who may come in: client keys, addresses, and names in the Host header."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import unquote_plus, urlsplit

from msgspec import Struct

from toolwire.gateway.settings.addresses import is_loopback
from toolwire.gateway.settings.config import ClientKey, Server
from toolwire.ir import Failure
from toolwire.protocols import ROOMS

OWN_HEADER = "x-toolwire-key"
"""For clients that show their own key of the provider in the usual place (`forward_auth`)."""
LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_REMEMBERED = 256


class Visitor(Struct, frozen=True):
    """A client that was let in: its key's name tells who it is; `own` is the credential that is its own, not ours."""

    key: ClientKey | None = None
    own: str = ""


class Access:
    def __init__(self, server: Server) -> None:
        self._keys = tuple((key.sha256.lower(), key) for key in server.keys)
        named = {host.lower() for host in server.hosts}
        self._checks_host = bool(named) or not self._keys
        self._hosts = named | LOCAL | {server.host.lower()}
        self._verdicts: dict[str, bool] = {}
        self._peers: dict[str, bool] = {}
        headers = dict.fromkeys(name for room in ROOMS.values() for name in room.http.credential_headers)
        self._headers = tuple(headers)
        self._queries = frozenset(room.http.credential_query for room in ROOMS.values()) - {""}

    def admitted(self, headers: Mapping[str, str], query: str, peer: str) -> Visitor | Failure:
        """The visitor, or why it is not let in."""
        host = headers.get("host", "")
        if self._checks_host and not self._verdicts.get(host) and not self._known_host(host):
            return Failure(
                "permission",
                "the Host header names a host that this gateway does not answer to; add it to server.hosts",
                403,
            )
        shown = self._credential(headers, query)
        if self._keys:
            return self._with_key(headers, shown)
        if peer and not self._peers.get(peer) and not self._is_local(peer):
            return Failure("permission", "without client keys only this machine is served; set [[server.keys]]", 403)
        if "origin" in headers and not self._known_origin(headers["origin"]):
            return Failure("permission", "pages of other origins are not served without client keys", 403)
        return Visitor(None, shown)

    def without_credential(self, query: str) -> str:
        """The query without the keys that clients may show in it: they are ours and go no further."""
        if not query:
            return query
        return "&".join(pair for pair in query.split("&") if pair.partition("=")[0] not in self._queries)

    def _with_key(self, headers: Mapping[str, str], shown: str) -> Visitor | Failure:
        own = headers.get(OWN_HEADER)
        found = self._key(_bare(own) if own is not None else shown)
        if found is None:
            what = "this key is not known here" if shown or own is not None else "no key was shown"
            return Failure("authentication", f"{what}; ask whoever runs this gateway for one", 401)
        return Visitor(found, shown if own is not None else "")

    def _key(self, shown: str) -> ClientKey | None:
        """Every key is compared, so that the time taken tells nothing."""
        digest = hashlib.sha256(shown.encode("utf-8", "surrogateescape")).hexdigest()
        found: ClientKey | None = None
        for sha256, key in self._keys:
            if hmac.compare_digest(sha256, digest):
                found = key
        return found

    def _credential(self, headers: Mapping[str, str], query: str) -> str:
        for name in self._headers:
            value = headers.get(name)
            if value:
                return _bare(value)
        if query:
            for pair in query.split("&"):
                name, _, given = pair.partition("=")
                if name in self._queries and given:
                    return unquote_plus(given)
        return ""

    def _is_local(self, peer: str) -> bool:
        verdict = self._peers.get(peer)
        if verdict is None:
            if len(self._peers) >= _REMEMBERED:
                self._peers.clear()
            verdict = self._peers[peer] = is_loopback(peer)
        return verdict

    def _known_host(self, header: str) -> bool:
        verdict = self._verdicts.get(header)
        if verdict is None:
            verdict = self._is_named(header)
            if len(self._verdicts) >= _REMEMBERED:
                self._verdicts.clear()
            self._verdicts[header] = verdict
        return verdict

    def _known_origin(self, origin: str) -> bool:
        try:
            return self._is_named(urlsplit(origin).netloc)
        except ValueError:
            return False

    def _is_named(self, netloc: str) -> bool:
        try:
            name = urlsplit(f"//{netloc}").hostname or ""
        except ValueError:
            return False
        return name.lower().rstrip(".") in self._hosts


def _bare(value: str) -> str:
    if " " not in value:
        return value.strip()
    word, _, rest = value.partition(" ")
    return rest.strip() if rest and word.lower() == "bearer" else value.strip()
