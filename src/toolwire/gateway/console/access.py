"""Who may open the console: everybody on this machine, or whoever has the console's own key. Client keys do not
open it.

A key is exchanged for a cookie that is signed with a secret of this start of the gateway, so that all workers accept it
and none survives a restart or another key.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import deque
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from toolwire.core.ir import Failure
from toolwire.gateway.config.config import Config
from toolwire.gateway.console.api import API_PATH, CONSOLE_HEADER
from toolwire.gateway.server.access import AccessControl

COOKIE = "toolwire_console"
SESSION_SECONDS = 12 * 3600
MAX_FAILED_TRIES, FAILED_TRIES_SECONDS = 10, 60.0
"""So many wrong keys in so many seconds, and further tries have to wait."""
SAME_SITE_FETCHES = ("same-origin", "none", "")
"""Values of Sec-Fetch-Site that browsers send for our own page and for what a person types."""


class ConsoleAccess:
    """Decides about requests to the console's API, under one configuration."""

    def __init__(self, config: Config, access: AccessControl, secret: bytes) -> None:
        self._access = access
        self._key_hash = config.console.sha256.lower()
        self.needs_key = bool(self._key_hash)
        self._cookie_key = hmac.digest(secret, b"toolwire console " + self._key_hash.encode(), "sha256")

    def check(self, method: str, headers: Mapping[str, str], peer: str, now: float) -> Failure | None:
        """Why a request must be refused; None if it may pass."""
        refused = self.check_origin(method, headers, peer)
        if refused is not None or not self.needs_key or self._has_session(headers, now):
            return refused
        return Failure("authentication", "the console needs its key: log in", 401)

    def check_origin(self, method: str, headers: Mapping[str, str], peer: str) -> Failure | None:
        """Requests must come from the console's own page, not from one of another site."""
        if not self._access.names_known_host(headers):
            what = "the Host header names a host that this gateway does not answer to; add it to server.allowed_hosts"
            return Failure("permission", what, 403)
        if not self.needs_key and not self._access.is_local_client(headers, peer):
            return Failure("permission", "without a key of its own the console serves only this machine", 403)
        origin = headers.get("origin")
        is_foreign = origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
        if is_foreign or headers.get("sec-fetch-site", "") not in SAME_SITE_FETCHES:
            return Failure("permission", "requests from web pages of other origins are refused", 403)
        if method == "POST":
            content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
            if content_type != "application/json" or CONSOLE_HEADER not in headers:
                what = f"a POST to the console needs `content-type: application/json` and the header `{CONSOLE_HEADER}`"
                return Failure("invalid", what, 400)
        return None

    def is_key(self, key: str) -> bool:
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        return self.needs_key and hmac.compare_digest(digest, self._key_hash)

    def write_cookie(self, headers: Mapping[str, str], now: float) -> str:
        """The cookie of a new session."""
        expires = str(int(now) + SESSION_SECONDS)
        is_secure = headers.get("x-forwarded-proto", "").partition(",")[0].strip() == "https"
        attributes = f"Path={API_PATH}; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"
        return f"{COOKIE}={expires}.{self._sign(expires)}; Max-Age={SESSION_SECONDS}; {attributes}"

    @staticmethod
    def write_ended_cookie() -> str:
        return f"{COOKIE}=; Max-Age=0; Path={API_PATH}; HttpOnly; SameSite=Strict"

    def _has_session(self, headers: Mapping[str, str], now: float) -> bool:
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        expires, _, signature = (morsel.value if morsel is not None else "").partition(".")
        is_genuine = hmac.compare_digest(signature.encode(), self._sign(expires).encode())
        return is_genuine and expires.isascii() and expires.isdecimal() and now < int(expires)

    def _sign(self, expires: str) -> str:
        return hmac.digest(self._cookie_key, expires.encode("utf-8", "surrogateescape"), "sha256").hex()


class FailedTries:
    """Limits the tries to guess the console's key, of all clients together: addresses are cheap."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def wait_seconds(self, now: float) -> int:
        """How long the next try has to wait; 0 if it may come now."""
        while self._times and self._times[0] <= now - FAILED_TRIES_SECONDS:
            self._times.popleft()
        if len(self._times) < MAX_FAILED_TRIES:
            return 0
        return int(self._times[0] + FAILED_TRIES_SECONDS - now) + 1

    def add(self, now: float) -> None:
        self._times.append(now)


def make_secret() -> bytes:
    return secrets.token_bytes(32)
