"""Authentication of clients: gateway keys, addresses, and the Host and Origin headers."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from urllib.parse import unquote_plus, urlsplit

from toolwire.core.ir import Failure
from toolwire.gateway.exchange.caller import CREDENTIAL_QUERIES, Caller
from toolwire.gateway.exchange.method_cache import cache_method
from toolwire.gateway.http.redact import MIN_SECRET_LENGTH
from toolwire.gateway.settings.address import is_loopback
from toolwire.gateway.settings.client_keys import (
    CHALLENGE_DIGITS,
    NEW_KEY_COMMAND,
    NEW_STORED_KEY_COMMAND,
    answer_challenge,
    hash_key,
)
from toolwire.gateway.settings.config import ClientKey, ServerSettings
from toolwire.protocols import CODECS

GATEWAY_KEY_HEADER = "x-toolwire-key"
"""The gateway's key, from clients that send their own provider key in the usual header (`forward_auth`)."""
KEYS_RETRY_AFTER = 5.0
"""Seconds, for clients whose key may be in a store that is down."""
AWS_SCHEME = "AWS4-HMAC-SHA256"
"""SDKs of AWS sign their requests: their access key id is the client's key (docs/decisions/0031-signed-clients.md)."""
_AWS_CREDENTIAL = re.compile(rf"{AWS_SCHEME} (?:.*,)?\s*Credential=([^,\s]+)/\d{{8}}/[^/,\s]+/[^/,\s]+/aws4_request")
_find_secret_words = re.compile(r"(?<=Credential=)[^,\s]+?(?=/\d{8}/)|\S+(?=\s*\Z)").findall
"""The keys in a header: what comes last, and the access key id of a signature."""
LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
_MAX_CACHED = 256
_FORWARDED_HEADERS = ("x-forwarded-for", "x-real-ip", "forwarded", "cf-connecting-ip", "true-client-ip")
_is_local = lru_cache(_MAX_CACHED)(is_loopback)


class AccessControl:
    """Decides who may use the gateway."""

    def __init__(self, server: ServerSettings, is_waiting_for_keys: Callable[[], bool] = lambda: False) -> None:
        """`is_waiting_for_keys`: are the client keys of the store not known yet?"""
        self._needs_keys = server.needs_keys
        self._new_key_command = NEW_STORED_KEY_COMMAND if server.store_keys else NEW_KEY_COMMAND
        self._is_waiting_for_keys = is_waiting_for_keys
        self._blinding = secrets.token_bytes(32)
        self._client_keys = {self._blind(key.sha256.lower()): key for key in server.keys}
        self._keys_by_name = {key.name: key for key in server.keys}
        self._old_keys = {self._blind(key.old_sha256.lower()): key for key in server.keys if key.old_sha256}
        self._metrics_key = self._blind(server.metrics_sha256.lower()) if server.metrics_sha256 else b""
        allowed = {host.lower() for host in server.allowed_hosts}
        self._checks_host = bool(allowed) or not self._needs_keys
        self._hosts = allowed | LOCAL_HOSTS | {server.host.lower()}
        self._is_known_url = cache_method(self._names_known_host, _MAX_CACHED)
        names = (name for codec in CODECS.values() for name in codec.http.credential_headers)
        self._credential_headers = tuple(dict.fromkeys(names))

    def names_known_host(self, headers: Mapping[str, str]) -> bool:
        """Does the Host header name this gateway? With client keys and without a list of names, every name does."""
        return not self._checks_host or self._is_known_url(f"//{headers.get('host', '')}")

    @staticmethod
    def is_local_client(headers: Mapping[str, str], peer: str) -> bool:
        """Is the client on this machine, and no proxy says otherwise?"""
        return (not peer or _is_local(peer)) and not _is_forwarded(headers)

    def authenticate(self, headers: Mapping[str, str], query: str, peer: str, now: float) -> Caller | Failure:
        if not self.names_known_host(headers):
            what = "the Host header names a host that this gateway does not answer to; add it to server.allowed_hosts"
            return Failure("permission", what, 403)
        credential = self._find_credential(headers, query)
        if self._needs_keys:
            return self._admit_with_key(headers, credential, now)
        if not self.is_local_client(headers, peer):
            what = f"without client keys only clients on this machine are served; `{NEW_KEY_COMMAND}` makes one"
            return Failure("permission", what, 403)
        if "origin" in headers and not self._names_known_host(headers["origin"]):
            return Failure("permission", "requests from web pages of other origins need a client key", 403)
        return Caller(None, credential)

    def authenticate_for_metrics(
        self, headers: Mapping[str, str], query: str, peer: str, now: float
    ) -> Caller | Failure:
        """As `authenticate`, for the page with the metrics of all clients."""
        if self._metrics_key:
            credential = headers.get(GATEWAY_KEY_HEADER) or self._find_credential(headers, query)
            if self._has_metrics_key(_strip_bearer(credential)):
                return Caller()
            if not self._needs_keys:
                return Failure("authentication", "the metrics need their key: see server.metrics_sha256", 401)
        caller = self.authenticate(headers, query, peer, now)
        if isinstance(caller, Caller) and caller.key is not None and not caller.key.metrics:
            what = f"the key `{caller.key.name}` may not read the metrics; the operator can set metrics = true"
            return Failure("permission", what, 403)
        return caller

    def answer_challenge(self, header: str) -> str:
        """The proof for a client that this gateway knows its key; "" if it does not, or is not asked."""
        return answer_challenge(header, lambda start: self._digests_by_start.get(start, ())) if header else ""

    @cached_property
    def _digests_by_start(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for key in self._keys_by_name.values():
            for digest in filter(None, (key.sha256.lower(), key.old_sha256.lower())):
                found.setdefault(digest[:CHALLENGE_DIGITS], []).append(digest)
        return found

    def may_read_metrics(self, headers: Mapping[str, str]) -> bool:
        """May a client at the address of the metrics read them?"""
        return not self._metrics_key or self._has_metrics_key(self._find_credential(headers, ""))

    def _has_metrics_key(self, credential: str) -> bool:
        return bool(credential) and hmac.compare_digest(self._blind(hash_key(credential)), self._metrics_key)

    def has_credential(self, headers: Mapping[str, str], query: str) -> bool:
        """Did the client send any key, known or not?"""
        return GATEWAY_KEY_HEADER in headers or bool(self._find_credential(headers, query))

    def list_credentials(self, headers: Mapping[str, str], query: str) -> tuple[str, ...]:
        """All keys that a client has sent, in any of the places where a key can be, known or not. Shorter words are
        placeholders."""
        sent = [headers[name] for name in (GATEWAY_KEY_HEADER, *self._credential_headers) if name in headers]
        pairs = (pair.partition("=") for pair in query.split("&"))
        sent += [unquote_plus(given) for name, _, given in pairs if unquote_plus(name) in CREDENTIAL_QUERIES]
        words = [word for value in sent for word in _find_secret_words(value)]
        return tuple(dict.fromkeys(word for word in words if len(word) >= MIN_SECRET_LENGTH))

    def _admit_with_key(self, headers: Mapping[str, str], credential: str, now: float) -> Caller | Failure:
        gateway_key = headers.get(GATEWAY_KEY_HEADER)
        sent = _strip_bearer(gateway_key) if gateway_key is not None else credential
        own_credential = credential if gateway_key is not None else ""
        digest = self._blind(hash_key(sent)) if sent else b""
        found = self._client_keys.get(digest)
        if found is not None:
            return refuse_key(found, now) or Caller(found, own_credential, found.expires_at)
        replaced = self._old_keys.get(digest)
        if replaced is not None:
            until = min(replaced.old_until_at, replaced.expires_at)
            return refuse_key(replaced, now, is_old=True) or Caller(replaced, own_credential, until)
        if sent and self._is_waiting_for_keys():
            # Anybody can get this: why the store is down, and where it is, is for the log only.
            what = "the gateway cannot read its client keys at the moment; try again later"
            return Failure("overloaded", what, 503, "store_unavailable", retry_after=KEYS_RETRY_AFTER)
        what = "unknown API key" if credential or gateway_key is not None else "no API key was sent"
        advice = f"ask the operator of this gateway for one (`{self._new_key_command}` makes it)"
        return Failure("authentication", f"{what}; {advice}", 401)

    def refuse_running(self, key: ClientKey, now: float) -> Failure | None:
        """Why a request that began with this key may not go on; None if it may. Its key may be of an earlier
        configuration."""
        current = self._keys_by_name.get(key.name)
        if current is None:
            what = f"the key `{key.name}` was removed; ask the operator of this gateway for another one"
            return Failure("authentication", what, 401)
        return refuse_key(current, now)

    def _blind(self, sha256: str) -> bytes:
        """A hash of the hash that only this process can compute, so that the time of a lookup tells nothing about the
        keys, however many there are."""
        return hmac.digest(self._blinding, sha256.encode(), "sha256")

    def _find_credential(self, headers: Mapping[str, str], query: str) -> str:
        for name in self._credential_headers:
            value = headers.get(name)
            if value:
                return _strip_bearer(value)
        for pair in query.split("&"):
            name, _, given = pair.partition("=")
            if name in CREDENTIAL_QUERIES and given:
                return unquote_plus(given)
        return ""

    def _names_known_host(self, url: str) -> bool:
        try:
            name = urlsplit(url).hostname or ""
        except ValueError:
            return False
        return name.lower().rstrip(".") in self._hosts


def refuse_key(key: ClientKey, now: float, is_old: bool = False) -> Failure | None:
    """Why a known key does not work now; None if it does. `is_old`: it is the one before `sha256`."""
    if key.disabled:
        what = f"the key `{key.name}` is disabled; ask the operator of this gateway to enable it, or for another one"
    elif now >= key.expires_at:
        what = f"the key `{key.name}` expired at {key.expires}; ask the operator of this gateway for a new one"
    elif is_old and now >= key.old_until_at:
        what = f"this key of `{key.name}` was replaced, and worked until {key.old_until}; use the new one"
    else:
        return None
    return Failure("authentication", what, 401)


def _is_forwarded(headers: Mapping[str, str]) -> bool:
    """Does a proxy on this machine say that the client is on another one?"""
    for name in _FORWARDED_HEADERS:
        value = headers.get(name)
        if value is not None and not all(_is_local_hop(hop) for hop in value.split(",")):
            return True
    return False


def _is_local_hop(hop: str) -> bool:
    """Is this the address of this machine, as in `127.0.0.1`, `[::1]:80` or `for="[::1]";proto=http`?"""
    fields = [field.strip() for field in hop.split(";")]
    address = next((field[4:] for field in fields if field.lower().startswith("for=")), fields[0]).strip('"')
    if address.startswith("["):
        address = address[1:].partition("]")[0]
    elif address.count(":") == 1:
        address = address.partition(":")[0]
    return _is_local(address)


def _strip_bearer(value: str) -> str:
    if " " not in value:
        return value.strip()
    scheme, _, token = value.partition(" ")
    if token and scheme.lower() == "bearer":
        return token.strip()
    signed = _AWS_CREDENTIAL.match(value)
    return signed[1] if signed is not None else value.strip()
