"""`[store]`: where the store is, with which keys, and whether that can be right. A URL can hold a password: it is never
told whole."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toolwire.gateway.settings.config import Store
from toolwire.gateway.settings.problems import meant
from toolwire.gateway.settings.tables import Findings, Table
from toolwire.gateway.settings.toml_lines import Place

NONE = "none"
SQLITE = "sqlite://"
POSTGRES = ("postgresql", "postgres")
EXTRA = "pip install 'toolwire[store]'"
SHORT = 20
"""Characters below which a key can be found by trying."""
_FORMS = "sqlite:///FOLDER/FILE, postgresql://USER@HOST/DATABASE, or none"
_GIB, _DAY = 1024**3, 24 * 3600


def store(table: Table, environ: Mapping[str, str], findings: Findings) -> Store:
    """The section, checked together with the variables that it names."""
    place: Place = ("store",)
    settings = Store(**findings.shaped(table, Store, place) or {})
    if settings.url and settings.url_env:
        findings.add((*place, "url_env"), "url and url_env exclude each other", "keep one of them")
        return settings
    key = "url_env" if settings.url_env else "url"
    url = address(settings, environ)
    if settings.url_env and not url:
        hint = f"set {settings.url_env}: else everything would be kept somewhere else"
        findings.add((*place, key), f"the variable {settings.url_env} is not set", hint)
    else:
        _check_url(url, (*place, key), findings)
    if settings.key_env:
        _check_keys(settings, environ, (*place, "key_env"), findings)
    return settings


def address(settings: Store, environ: Mapping[str, str]) -> str:
    """The URL, wherever it stands; the usual file's when it stands nowhere."""
    if settings.url_env:
        return environ.get(settings.url_env, "").strip()
    return settings.url.strip() or f"{SQLITE}{_usual(environ)}"


def keys(settings: Store, environ: Mapping[str, str]) -> tuple[str, ...]:
    """The first encrypts, all decrypt."""
    given = environ.get(settings.key_env, "") if settings.key_env else ""
    return tuple(key for key in map(str.strip, given.split(",")) if key)


def file(url: str) -> Path | None:
    """The file of a store in SQLite; None for all others."""
    return Path("/" + unquote(url.removeprefix(SQLITE)).lstrip("/")) if url.startswith(SQLITE) else None


def shown(settings: Store, environ: Mapping[str, str]) -> str:
    """What is kept, where and for how long, for people; no password in it."""
    url = address(settings, environ)
    if url == NONE:
        return "none: nothing is kept"
    parts = urlsplit(url)
    where = str(file(url) or f"{parts.scheme}://{_hosts(parts.netloc)}{parts.path}")
    days = f"{settings.ttl / _DAY:g} days" if settings.ttl else "ever"
    limit = f", at most {settings.max_bytes / _GIB:.3g} GiB" if settings.max_bytes else ""
    return f"{where}, for {days}{limit}{', encrypted' if settings.key_env else ''}"


def _usual(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME", "")
    if not state.startswith("/"):  # the specification wants others passed over
        state = str(Path(environ.get("HOME") or "/", ".local", "state"))
    return Path(state, "toolwire", "store.db")


def _check_url(url: str, place: Place, findings: Findings) -> None:
    if url == NONE:
        return
    scheme, colon, _ = url.partition("://")
    if scheme in POSTGRES and colon:
        if not _is_server(url):
            findings.add(place, "this is no URL of a database", "write postgresql://USER@HOST/DATABASE")
        elif find_spec("asyncpg") is None:
            findings.add(place, "a store in PostgreSQL needs a package that is not installed", EXTRA)
    elif url.startswith(SQLITE):
        if not url.startswith(f"{SQLITE}/") or url.endswith("/"):
            findings.add(place, "this is no path of a file, from the root", "write sqlite:///FOLDER/FILE")
    elif url.startswith("/"):
        findings.add(place, "a path alone is no URL", f"write {SQLITE}{url}")
    else:
        near = meant(scheme, ("sqlite", *POSTGRES, NONE)) if colon or scheme.isalpha() else ""
        hint = near if near.startswith("did") else f"there is: {_FORMS}"
        findings.add(place, "this is no URL of a store", hint)


def _hosts(netloc: str) -> str:
    """Without user and password. There may be several with commas between them, of which one takes writes."""
    return netloc.rpartition("@")[2]


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        for host in _hosts(parts.netloc).split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError:  # its text can hold a part of the password
        return False
    return bool(_hosts(parts.netloc) or "host=" in parts.query)


def _check_keys(settings: Store, environ: Mapping[str, str], place: Place, findings: Findings) -> None:
    found = keys(settings, environ)
    if not found:
        hint = f"set {settings.key_env}: else everything would be kept unencrypted"
        findings.add(place, f"the variable {settings.key_env} is not set", hint)
    elif find_spec("cryptography") is None:
        findings.add(place, "encryption needs a package that is not installed", EXTRA)
    elif any(len(key) < SHORT for key in found):
        hint = "make one with `openssl rand -hex 32`"
        findings.add(place, f"a key of fewer than {SHORT} characters can be guessed", hint, "warning")
