"""Who may open the console: everybody on this machine, or whoever has the console's own key. Client keys do not
open it.

A key is exchanged for a cookie that is signed with a secret of this start of the gateway, so that all workers accept it
and none survives a restart or another key. Each cookie has an id, by which logging out ends it, also for a copy of it.
"""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from toolwire.core.ir import Failure
from toolwire.gateway.features.keys.access import AccessControl
from toolwire.gateway.settings.client_keys import hash_key
from toolwire.gateway.settings.config import Config
from toolwire.gateway.surfaces.console.api import API_PATH, CONSOLE_HEADER
from toolwire.gateway.surfaces.console.settings import ConsoleSettings

COOKIE = "toolwire_console"
SESSION_SECONDS = 12 * 3600
MAX_FAILED_TRIES, FAILED_TRIES_SECONDS = 10, 60.0
"""So many wrong keys of one address in so many seconds, and it is told to wait."""
MAX_FAILED_ADDRESSES = 1024
"""So many addresses are remembered, those that failed last."""
SAME_SITE_FETCHES = ("same-origin", "none", "")
"""Values of Sec-Fetch-Site that browsers send for our own page and for what a person types."""


class ConsoleAccess:
    """Decides about requests to the console's API, under one configuration."""

    def __init__(self, config: Config, access: AccessControl, secret: bytes, ended: EndedSessions) -> None:
        self._access, self._ended = access, ended
        self._key_hash = config.section(ConsoleSettings).sha256.lower()
        self.needs_key = bool(self._key_hash)
        self._cookie_key = hmac.digest(secret, b"toolwire console " + self._key_hash.encode(), "sha256")

    def check(self, method: str, headers: Mapping[str, str], peer: str, now: float) -> Failure | None:
        """Why a request must be refused; None if it may pass."""
        refused = self.check_origin(method, headers, peer)
        if refused is not None or not self.needs_key or self._find_session(headers, now):
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
        return self.needs_key and hmac.compare_digest(hash_key(key), self._key_hash)

    def write_cookie(self, headers: Mapping[str, str], now: float) -> str:
        session = f"{int(now) + SESSION_SECONDS}.{secrets.token_hex(16)}"
        is_secure = headers.get("x-forwarded-proto", "").partition(",")[0].strip() == "https"
        attributes = f"Path={API_PATH}; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}"
        return f"{COOKIE}={session}.{self._sign(session)}; Max-Age={SESSION_SECONDS}; {attributes}"

    def end_session(self, headers: Mapping[str, str], now: float) -> str:
        """End the session of a request, for every copy of its cookie. Gives the cookie that takes its place."""
        session = self._find_session(headers, now)
        if session:
            self._ended.add(session, now)
        return f"{COOKIE}=; Max-Age=0; Path={API_PATH}; HttpOnly; SameSite=Strict"

    def _find_session(self, headers: Mapping[str, str], now: float) -> str:
        """The session of a request's cookie; nothing if it is forged, over or ended."""
        try:
            morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return ""
        session, _, signature = (morsel.value if morsel is not None else "").rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(session).encode()):
            return ""
        return session if now < _read_expiry(session) and session not in self._ended else ""

    def _sign(self, session: str) -> str:
        return hmac.digest(self._cookie_key, session.encode("utf-8", "surrogateescape"), "sha256").hex()


class EndedSessions:
    """Sessions that were logged out, until their cookies would have expired. With a directory, an empty file there
    tells the other workers, and those that are started later."""

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._sessions: set[str] = set()

    def add(self, session: str, now: float) -> None:
        self._sessions = {one for one in self._sessions if now < _read_expiry(one)} | {session}
        if self._directory is not None:
            for path in self._directory.glob("*.ended"):
                if _read_expiry(path.name) <= now:
                    path.unlink(missing_ok=True)
            self._path(self._directory, session).touch(mode=0o600)

    def __contains__(self, session: str) -> bool:
        return session in self._sessions or (
            self._directory is not None and self._path(self._directory, session).exists()
        )

    @staticmethod
    def _path(directory: Path, session: str) -> Path:
        return directory / f"{session}.ended"


def _read_expiry(session: str) -> int:
    """When a session expires, in seconds since 1970: its first part. The text is one that this gateway has written."""
    return int(session.partition(".")[0])


class FailedTries:
    """Counts wrong keys, for each address. Only further wrong keys are told to wait: behind a proxy all clients have
    one address, and nobody may lock out those who have the key."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}
        """Of the last wrong keys, by address; the address that failed last is at the end."""

    def add(self, address: str, now: float) -> int:
        """Count a wrong key. Gives the seconds that its sender has to wait; 0 if it may try again now."""
        times = self._times.pop(address, None) or deque(maxlen=MAX_FAILED_TRIES)
        self._times[address] = times
        if len(self._times) > MAX_FAILED_ADDRESSES:
            del self._times[next(iter(self._times))]
        while times and times[0] <= now - FAILED_TRIES_SECONDS:
            times.popleft()
        if len(times) < MAX_FAILED_TRIES:
            times.append(now)
            return 0
        return int(times[0] + FAILED_TRIES_SECONDS - now) + 1


def make_secret() -> bytes:
    return secrets.token_bytes(32)
