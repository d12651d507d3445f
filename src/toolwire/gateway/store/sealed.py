"""The door before every store that encrypts bodies on their way in and decrypts them on their way out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from msgspec.structs import replace

from toolwire.gateway.store.record import Down, Entry, Stats, Store, Swept

_OURS = b"\0TW"
"""How a body begins that is not as it was given. One that begins like this by itself is marked as plain."""
_ENCRYPTED, _PLAIN = _OURS + b"E1", _OURS + b"P1"
_NAME, _NONCE = 8, 12


class _Cipher(Protocol):
    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...
    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes | None) -> bytes: ...


class Sealed:
    """A store whose bodies are encrypted with the first key and read with any; without a key they stay as they are.
    `key_env` is where keys are from, for what is said when one is missing."""

    def __init__(self, store: Store, keys: Sequence[str] = (), key_env: str = "") -> None:
        self._store, self._key_env = store, key_env
        self._ciphers = dict(_cipher(key) for key in keys)
        self._first = next(iter(self._ciphers), b"")

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> list[Entry] | Down:
        return self._all_readable(await self._store.get(owner, kind, ids))

    async def put(
        self, entries: Sequence[Entry], where: tuple[str, ...] = (), behind: Sequence[Entry] = ()
    ) -> bool | Down:
        return await self._store.put(
            [self._written(entry) for entry in entries], where, [self._written(entry) for entry in behind]
        )

    async def append(self, entries: Sequence[Entry]) -> bool | Down:
        return await self._store.append([self._written(entry) for entry in entries])

    async def chain(self, owner: str, kind: str, id: str, most: int) -> list[Entry] | Down:
        return self._all_readable(await self._store.chain(owner, kind, id, most))

    async def children(
        self, owner: str, kind: str, parent: str, after: int | None = None, most: int = 0, descending: bool = False
    ) -> list[Entry] | Down:
        return self._all_readable(await self._store.children(owner, kind, parent, after, most, descending))

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | Down:
        return await self._store.delete(owner, kind, ids)

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> Down | None:
        return await self._store.touch(owner, kind, ids, expires)

    async def sweep(self) -> Swept | Down:
        return await self._store.sweep()

    async def stats(self) -> Stats | Down:
        told = await self._store.stats()
        return told if isinstance(told, Down) else replace(told, encrypted=bool(self._ciphers))

    async def export(self, owner: str | None = None) -> AsyncIterator[Entry | Down]:
        async for entry in self._store.export(owner):
            yield entry if isinstance(entry, Down) else self._readable(entry)

    async def close(self) -> None:
        await self._store.close()

    # --- one body ---

    def _written(self, entry: Entry) -> Entry:
        if not entry.body:  # says nothing
            return entry
        if self._first:
            nonce = os.urandom(_NONCE)
            secret = self._ciphers[self._first].encrypt(nonce, entry.body, _name(entry))
            return replace(entry, body=_ENCRYPTED + self._first + nonce + secret)
        return replace(entry, body=_PLAIN + entry.body) if entry.body.startswith(_OURS) else entry

    def _all_readable(self, entries: list[Entry] | Down) -> list[Entry] | Down:
        if isinstance(entries, Down):
            return entries
        found: list[Entry] = []
        for entry in entries:
            clear = self._readable(entry)
            if isinstance(clear, Down):
                return clear
            found.append(clear)
        return found

    def _readable(self, entry: Entry) -> Entry | Down:
        body = entry.body
        if not body.startswith(_OURS):
            return entry
        if body.startswith(_PLAIN):
            return replace(entry, body=body[len(_PLAIN) :])
        what = f"the {entry.kind} `{entry.id}`"
        if not body.startswith(_ENCRYPTED):
            return Down(f"{what} was written by a newer toolwire: update this one")
        start = len(_ENCRYPTED) + _NAME
        cipher = self._ciphers.get(body[len(_ENCRYPTED) : start])
        if cipher is None:
            return Down(f"{what} is encrypted, and {self._no_key()}")
        clear = _decrypted(cipher, body[start : start + _NONCE], body[start + _NONCE :], _name(entry))
        return (
            Down(f"{what} was changed in the store by somebody else") if clear is None else replace(entry, body=clear)
        )

    def _no_key(self) -> str:
        if self._ciphers:
            return f"no key in {self._key_env} fits: add the one it was written with, behind a comma"
        where = f"set {self._key_env}" if self._key_env else "name the variable that holds it in [store] key_env"
        return f"there is no key: {where}"


def _name(entry: Entry) -> bytes:
    """Goes into the encryption, so that no body can stand in for another."""
    parts = [part.encode() for part in (entry.owner, entry.kind, entry.id)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def _cipher(key: str) -> tuple[bytes, _Cipher]:
    """From any text, slowly, so that trying words is dear; the same everywhere, because gateways share a store. Beside
    it, a name for the key that tells nothing of it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  an extra, only for who wants it

    made = hashlib.scrypt(key.encode(), salt=b"toolwire store", n=2**15, r=8, p=1, maxmem=2**26, dklen=32 + _NAME)
    return made[32:], AESGCM(made[:32])


def _decrypted(cipher: _Cipher, nonce: bytes, data: bytes, name: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415

    try:
        return cipher.decrypt(nonce, data, name)
    except (InvalidTag, ValueError):  # a nonce that is too short is a ValueError
        return None
