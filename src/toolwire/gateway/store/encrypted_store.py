"""Encryption of entry bodies, as a wrapper around any other store."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from toolwire.gateway.store.store import Entry, Store, StoreDown, StoreStats, SweepResult

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_PREFIX = b"\0TW"
"""Every stored body that differs from the given one starts with this. A plain body that happens to start with it gets
`_PLAIN_PREFIX` in front."""
_ENCRYPTED_PREFIX, _PLAIN_PREFIX = _PREFIX + b"E1", _PREFIX + b"P1"
_KEY_NAME_LENGTH, _NONCE_LENGTH = 8, 12


class EncryptedStore:
    """Encrypts bodies with the first key and decrypts them with any; without keys, bodies are stored as they are.
    `key_env` is the environment variable of the keys, for error texts."""

    def __init__(self, store: Store, keys: Sequence[str] = (), key_env: str = "") -> None:
        self._store, self._key_env = store, key_env
        self._ciphers = dict(_derive_cipher(key) for key in keys)
        self._write_key_name = next(iter(self._ciphers), b"")

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | StoreDown:
        return self._decrypt_entries(await self._store.get(owner, kind, ids))

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        return await self._store.put(
            [self._encrypt_entry(entry) for entry in entries],
            required_marks,
            [self._encrypt_entry(entry) for entry in appended],
        )

    async def get_chain(self, owner: str, kind: str, id: str, limit: int) -> list[Entry] | StoreDown:
        return self._decrypt_entries(await self._store.get_chain(owner, kind, id, limit))

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None
    ) -> list[Entry] | StoreDown:
        return self._decrypt_entries(await self._store.get_children(owner, kind, parent, after))

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        return await self._store.delete(owner, kind, ids)

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        return await self._store.touch(owner, kind, ids, expires)

    async def sweep(self) -> SweepResult | StoreDown:
        return await self._store.sweep()

    async def stats(self) -> StoreStats | StoreDown:
        stats = await self._store.stats()
        return stats if isinstance(stats, StoreDown) else replace(stats, encrypted=bool(self._ciphers))

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        async for entry in self._store.export(owner):
            yield entry if isinstance(entry, StoreDown) else self._decrypt_entry(entry)

    async def close(self) -> None:
        await self._store.close()

    # --- one body ---

    def _encrypt_entry(self, entry: Entry) -> Entry:
        if not entry.body:
            return entry
        if self._write_key_name:
            nonce = os.urandom(_NONCE_LENGTH)
            ciphertext = self._ciphers[self._write_key_name].encrypt(nonce, entry.body, _associated_data(entry))
            return replace(entry, body=_ENCRYPTED_PREFIX + self._write_key_name + nonce + ciphertext)
        return replace(entry, body=_PLAIN_PREFIX + entry.body) if entry.body.startswith(_PREFIX) else entry

    def _decrypt_entries(self, entries: list[Entry] | StoreDown) -> list[Entry] | StoreDown:
        if isinstance(entries, StoreDown):
            return entries
        decrypted: list[Entry] = []
        for entry in entries:
            clear = self._decrypt_entry(entry)
            if isinstance(clear, StoreDown):
                return clear
            decrypted.append(clear)
        return decrypted

    def _decrypt_entry(self, entry: Entry) -> Entry | StoreDown:
        body = entry.body
        if not body.startswith(_PREFIX):
            return entry
        if body.startswith(_PLAIN_PREFIX):
            return replace(entry, body=body[len(_PLAIN_PREFIX) :])
        label = f"the {entry.kind} `{entry.id}`"
        if not body.startswith(_ENCRYPTED_PREFIX):
            return StoreDown(f"{label} was written by a newer version of toolwire: update toolwire")
        start = len(_ENCRYPTED_PREFIX) + _KEY_NAME_LENGTH
        cipher = self._ciphers.get(body[len(_ENCRYPTED_PREFIX) : start])
        if cipher is None:
            return StoreDown(f"{label} is encrypted, and {self._missing_key_text()}")
        clear = _decrypt_body(
            cipher, body[start : start + _NONCE_LENGTH], body[start + _NONCE_LENGTH :], _associated_data(entry)
        )
        if clear is None:
            return StoreDown(f"{label} cannot be decrypted: its body or its name was changed in the store")
        return replace(entry, body=clear)

    def _missing_key_text(self) -> str:
        if self._ciphers:
            return f"no key in {self._key_env} fits: add the key it was written with, after a comma"
        fix = f"set {self._key_env}" if self._key_env else "name the variable that contains it in [store] key_env"
        return f"there is no key: {fix}"


def _associated_data(entry: Entry) -> bytes:
    """Binds the encrypted body to the entry's name, so that it cannot be moved to another entry."""
    parts = [part.encode() for part in (entry.owner, entry.kind, entry.id)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _derive_cipher(key: str) -> tuple[bytes, AESGCM]:
    """A name for the key, which reveals nothing about it, and the cipher. scrypt makes guessing keys expensive; the
    salt is fixed, because gateways that share a store must derive the same key."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  an optional extra

    derived = hashlib.scrypt(
        key.encode(), salt=b"toolwire store", n=2**15, r=8, p=1, maxmem=2**26, dklen=32 + _KEY_NAME_LENGTH
    )
    return derived[32:], AESGCM(derived[:32])


def _decrypt_body(cipher: AESGCM, nonce: bytes, data: bytes, associated_data: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415

    try:
        return cipher.decrypt(nonce, data, associated_data)
    except (InvalidTag, ValueError):  # ValueError: the nonce is too short
        return None
