"""The keys that sign envelopes: from the environment, from PostgreSQL, or from a file of this machine."""

from __future__ import annotations

import asyncio
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from toolwire.core.envelopes import EnvelopeKeys
from toolwire.gateway.settings.config import Config
from toolwire.gateway.settings.store import NO_STORE, read_secrets, sqlite_path, state_folder, store_url
from toolwire.gateway.store.store import SecretStore, StoreDown

SECRET_NAME = "envelopes"
"""The name of the key in PostgreSQL."""
LOAD_WAIT_SECONDS = 3.0
"""How long the first requests wait for a key in PostgreSQL."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 30.0
_PURPOSE = b"toolwire envelopes\0"
_KEY_BYTES = 32
PROCESS_KEY = secrets.token_bytes(_KEY_BYTES)
"""Signs where no other key can be had. Workers are forked, so they have the same one."""


def load_envelope_keys(config: Config, environ: Mapping[str, str], shared_key: bytes | None = None) -> EnvelopeKeys:
    """The keys of this installation. `shared_key` is that of a store that several gateways share, if it was loaded.
    Raises OSError if the key file cannot be used."""
    path = sqlite_path(store_url(config.store, environ))
    keys = tuple(map(_derive_key, read_secrets(config.server.secret_env, environ) or _store_secrets(config, environ)))
    if uses_shared_key(config, environ):
        # Earlier versions derived the key from secrets of the store. While the store is down, that key signs.
        keys = (*((shared_key,) if shared_key else ()), *(keys or (PROCESS_KEY,)))
    elif not keys:
        file = path.with_name(path.name + ".key") if path is not None else state_folder(environ) / "envelopes.key"
        keys = (_read_key_file(file),)
    return EnvelopeKeys(keys)


def uses_shared_key(config: Config, environ: Mapping[str, str]) -> bool:
    """Is the key in a store that several gateways share?"""
    url = store_url(config.store, environ)
    return url != NO_STORE and sqlite_path(url) is None and not read_secrets(config.server.secret_env, environ)


def _derive_key(secret: str) -> bytes:
    return hashlib.sha256(_PURPOSE + secret.encode("utf-8", "surrogateescape")).digest()


def _store_secrets(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Secrets that all gateways on one store have."""
    url = store_url(config.store, environ)
    found = read_secrets(config.store.key_env, environ) if url != NO_STORE else ()
    if found or sqlite_path(url) is not None or url == NO_STORE:
        return found
    with suppress(ValueError):
        password = unquote(urlsplit(url).password or "")
        return (password,) if password else ()
    return ()


# --- in a file ---


def _read_key_file(file: Path) -> bytes:
    """The key. The file is created if there is none; of several processes that do so at the same time, one wins."""
    if not file.exists():
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, secrets.token_hex(_KEY_BYTES).encode() + b"\n")
            os.fsync(descriptor)
            with suppress(FileExistsError):
                os.link(draft, file)
        finally:
            os.close(descriptor)
            draft.unlink()
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        file.chmod(0o600)
    key = file.read_bytes().partition(b"\n")[0].strip()
    if len(key) < 2 * _KEY_BYTES:
        raise OSError(None, "it does not contain a key: delete it to make a new one", str(file))
    return hashlib.sha256(_PURPOSE + key).digest()


# --- in PostgreSQL ---


class SharedKey:
    """The key of all gateways on one store; the first of them creates it. If the store is down, it is tried again until
    it is loaded, and requests go on without it."""

    def __init__(self, store: SecretStore, on_loaded: Callable[[], None], on_failed: Callable[[str], None]) -> None:
        """`on_failed` gets the reason of the first failure."""
        self._store, self._on_loaded, self._on_failed = store, on_loaded, on_failed
        self.value: bytes | None = None
        self.is_settled = False
        """It is loaded, or the first attempt has failed: no request waits for it."""
        self._first_attempt = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.value is None and (self._task is None or self._task.done()):
            self._first_attempt = asyncio.Event()
            self._task = asyncio.get_running_loop().create_task(self._load())

    async def wait(self) -> None:
        """Wait until it is loaded or known to be unavailable, but not long."""
        self.start()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOAD_WAIT_SECONDS):
                await self._first_attempt.wait()
        self.is_settled = True

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _load(self) -> None:
        delay = FIRST_RETRY_SECONDS
        while isinstance(key := await self._load_once(), StoreDown):
            if not self._first_attempt.is_set():
                self._on_failed(key.reason)
                self._first_attempt.set()
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_SECONDS)
        self.value, self.is_settled = key, True
        self._on_loaded()
        self._first_attempt.set()

    async def _load_once(self) -> bytes | StoreDown:
        secret = await self._store.load_secret(SECRET_NAME, secrets.token_hex(_KEY_BYTES).encode())
        if isinstance(secret, StoreDown):
            return secret
        if len(secret) < 2 * _KEY_BYTES:
            return StoreDown(f"`{SECRET_NAME}` in toolwire_secrets is not a key: delete the row to make a new one")
        return hashlib.sha256(_PURPOSE + secret).digest()
