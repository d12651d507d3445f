"""The keys that sign envelopes: from the environment, from secrets of the store, or from a file beside the store."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toolwire.core.envelopes import EnvelopeKeys
from toolwire.gateway.config.config import Config
from toolwire.gateway.config.store import NO_STORE, encryption_keys, sqlite_path, store_url

UNSIGNED_UNTIL = 1801440000.0
"""1 February 2027: from then on, envelopes of versions that did not sign them are no longer opened by default."""
_PURPOSE = b"toolwire envelopes\0"
_KEY_BYTES = 32
_UPGRADED = b"upgraded\n"
"""In the key file: the store is older than the key, so clients may have unsigned envelopes."""


def load_envelope_keys(config: Config, environ: Mapping[str, str], now: float) -> EnvelopeKeys | None:
    """The keys of this installation; None if there is no secret to derive them from. Raises OSError if the key file
    cannot be used."""
    accepts_unsigned = now < UNSIGNED_UNTIL
    given = [text.strip() for text in environ.get(config.server.secret_env, "").split(",")]
    texts = [text for text in given if text] or [*_store_secrets(config, environ)]
    keys = tuple(hashlib.sha256(_PURPOSE + text.encode("utf-8", "surrogateescape")).digest() for text in texts)
    path = sqlite_path(store_url(config.store, environ))
    if not keys and path is not None:
        key, is_upgraded = _read_key_file(path.with_name(path.name + ".key"), path)
        keys, accepts_unsigned = (key,), accepts_unsigned and is_upgraded
    if config.server.unsigned_envelopes is not None:
        accepts_unsigned = config.server.unsigned_envelopes
    return EnvelopeKeys(keys, accepts_unsigned=accepts_unsigned) if keys else None


def _store_secrets(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Secrets that all gateways on one store have."""
    url = store_url(config.store, environ)
    found = encryption_keys(config.store, environ) if url != NO_STORE else ()
    if found or sqlite_path(url) is not None or url == NO_STORE:
        return found
    with suppress(ValueError):
        password = unquote(urlsplit(url).password or "")
        return (password,) if password else ()
    return ()


def _read_key_file(file: Path, store: Path) -> tuple[bytes, bool]:
    """The key, and whether the store is older than it. The file is created if there is none; of several processes that
    do so at the same time, one wins."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_upgraded = store.exists() and store.stat().st_size > 0
        draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, secrets.token_hex(_KEY_BYTES).encode() + b"\n" + (_UPGRADED if is_upgraded else b""))
            os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(draft, file)
        finally:
            os.close(descriptor)
            draft.unlink()
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        file.chmod(0o600)
    first, _, rest = file.read_bytes().partition(b"\n")
    key = first.strip()
    if len(key) < 2 * _KEY_BYTES:
        raise OSError(None, "it does not contain a key: delete it to make a new one", str(file))
    return hashlib.sha256(_PURPOSE + key).digest(), rest == _UPGRADED
