"""`[store]`: the URL and the encryption keys. A URL may contain a password and is never shown in full."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from toolwire.gateway.settings.config import StoreSettings
from toolwire.gateway.settings.problems import ProblemCollector, suggest_name
from toolwire.terminal.packages import describe_missing_package, is_installed

NO_STORE = "none"
SQLITE_PREFIX = "sqlite://"
POSTGRES_SCHEMES = ("postgresql", "postgres")
MIN_KEY_LENGTH = 20
"""Shorter keys could be guessed."""
_URL_FORMS = "sqlite:///FOLDER/FILE, postgresql://USER@HOST/DATABASE, or none"
_GIB, _DAY = 1024**3, 24 * 3600


class UrlSettings(Protocol):
    """A table with a URL, or with the name of a variable that has it."""

    @property
    def url(self) -> str: ...
    @property
    def url_env(self) -> str: ...


def read_store(table: object, environ: Mapping[str, str], place: ProblemCollector) -> StoreSettings:
    """The section, checked together with the environment variables that it names."""
    settings = StoreSettings(**place.read_fields(table, StoreSettings) or {})
    if read_url(settings, environ, place, "data would be kept in another store") or not settings.url_env:
        _check_url(store_url(settings, environ), place.at("url_env" if settings.url_env else "url"))
    check_variable("key", settings.key_env, environ, place.at("key_env"), "data would be stored unencrypted")
    if settings.key_env and not is_installed("cryptography"):
        place.at("key_env").add(*describe_missing_package("encryption", "cryptography"))
    return settings


def read_url(settings: UrlSettings, environ: Mapping[str, str], place: ProblemCollector, otherwise: str) -> str:
    """The URL that is set, from one place only; "" if there is none, or a problem. `otherwise` says what would happen
    without the environment variable."""
    if settings.url and settings.url_env:
        place.at("url_env").add("url and url_env cannot be combined", "remove one of them")
        return ""
    url = find_url(settings, environ)
    if settings.url_env and not url:
        hint = f"set {settings.url_env}; otherwise {otherwise}"
        place.at("url_env").add(f"the environment variable {settings.url_env} is not set", hint)
    return url


def find_url(settings: UrlSettings, environ: Mapping[str, str]) -> str:
    """The URL from the file or the environment; "" if there is none."""
    return environ.get(settings.url_env, "").strip() if settings.url_env else settings.url.strip()


def store_url(settings: StoreSettings, environ: Mapping[str, str]) -> str:
    """The URL of the store, or that of the default file."""
    if settings.url_env:
        return find_url(settings, environ)
    return find_url(settings, environ) or f"{SQLITE_PREFIX}{state_folder(environ) / 'store.db'}"


def state_folder(environ: Mapping[str, str]) -> Path:
    """Where a gateway keeps its files if the configuration names no other place."""
    state, home = environ.get("XDG_STATE_HOME", ""), environ.get("HOME", "")
    # The XDG specification says to ignore relative paths: they would lead into the working folder.
    own = Path(home if home.startswith("/") else "/", ".local", "state")
    return Path(state if state.startswith("/") else own, "toolwire")


def read_secrets(variable: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The keys or secrets in a variable, separated by commas: the first is used, all are accepted. None without one."""
    given = environ.get(variable, "") if variable else ""
    return tuple(secret for secret in map(str.strip, given.split(",")) if secret)


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite store; None for other stores."""
    return Path("/" + unquote(url.removeprefix(SQLITE_PREFIX)).lstrip("/")) if url.startswith(SQLITE_PREFIX) else None


def is_shared_store(settings: StoreSettings, environ: Mapping[str, str]) -> bool:
    """Can gateways on other machines use it, too?"""
    return urlsplit(store_url(settings, environ)).scheme in POSTGRES_SCHEMES


def describe_store(settings: StoreSettings, environ: Mapping[str, str]) -> str:
    """What is stored, where and for how long, without the password."""
    url = store_url(settings, environ)
    if url == NO_STORE:
        return "none: nothing is stored"
    where = str(sqlite_path(url) or hide_user(url))
    days = f"{settings.ttl / _DAY:g} days" if settings.ttl else "ever"
    limit = f", at most {settings.max_bytes / _GIB:.3g} GiB" if settings.max_bytes else ""
    return f"{where}, for {days}{limit}{', encrypted' if settings.key_env else ''}"


def hide_user(url: str) -> str:
    """The server and its database, without user and password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{hosts_without_user(parts.netloc)}{parts.path}"


def _check_url(url: str, place: ProblemCollector) -> None:
    if url == NO_STORE:
        return
    scheme, colon, _ = url.partition("://")
    if scheme in POSTGRES_SCHEMES and colon:
        check_postgres_url(url, place)
    elif url.startswith(SQLITE_PREFIX):
        if not url.startswith(f"{SQLITE_PREFIX}/") or url.endswith("/"):
            place.add("not an absolute path of a file", "write sqlite:///FOLDER/FILE")
    elif url.startswith("/"):
        place.add("a path is not a URL", f"write {SQLITE_PREFIX}{url}")
    else:
        near = suggest_name(scheme, ("sqlite", *POSTGRES_SCHEMES, NO_STORE)) if colon or scheme.isalpha() else ""
        hint = near if near.startswith("did") else f"choose from: {_URL_FORMS}"
        place.add("not a valid store URL", hint)


def check_postgres_url(url: str, place: ProblemCollector) -> None:
    if not _is_database_url(url):
        place.add("not a valid database URL", "write postgresql://USER@HOST/DATABASE")
    elif not is_installed("asyncpg"):
        place.add(*describe_missing_package("PostgreSQL", "asyncpg"))


def hosts_without_user(netloc: str) -> str:
    """The hosts, separated by commas, without user and password."""
    return netloc.rpartition("@")[2]


def _is_database_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        for host in hosts_without_user(parts.netloc).split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError:  # its text may contain a part of the password
        return False
    return bool(hosts_without_user(parts.netloc) or "host=" in parts.query)


def check_variable(
    what: str, variable: str, environ: Mapping[str, str], place: ProblemCollector, otherwise: str
) -> None:
    """Check a variable with secrets, if one is named. `otherwise` says what would happen without it."""
    found = read_secrets(variable, environ)
    if variable and not found:
        hint = f"set {variable}; otherwise {otherwise}"
        place.add(f"the environment variable {variable} is not set", hint)
    elif any(len(secret) < MIN_KEY_LENGTH for secret in found):
        hint = "create one with `openssl rand -hex 32`"
        place.add(f"a {what} of fewer than {MIN_KEY_LENGTH} characters can be guessed", hint, "warning")
