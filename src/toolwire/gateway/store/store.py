"""The interface of a store: its entries and operations, and the encryption of bodies.

A store that cannot be reached is a return value (`StoreDown`), not an exception.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, final, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


class Entry(Struct, frozen=True, kw_only=True):
    """One stored record. Owner, kind and id together are its name; an owner cannot see the entries of another."""

    owner: str
    """A digest of the client key that wrote it; "" if the gateway has no client keys."""
    kind: str
    id: str
    body: bytes = b""
    """The only field that is encrypted, if encryption is configured."""
    parent: str = ""
    """The id that it belongs to or follows: the conversation of an item, the response before a response."""
    place: int = 0
    """Its position among all entries with the same parent."""
    mark: str = ""
    """Its state; `put` can require one."""
    created: float = 0.0
    """Seconds since 1970; 0 means now."""
    expires: float = 0.0
    """Seconds since 1970; from then on the entry is invisible. 0 means the store's default time to live from now."""


ROOT_KINDS = ("conversation", "response")
"""Kinds of entries that entries of other kinds belong to, by their `parent`. When a store makes room, it removes such
an entry with all that belongs to it, or nothing of it."""
SWEEP_TARGET_RATIO = 0.9
"""When the store exceeds `max_bytes`, a sweep shrinks it to this part of `max_bytes`."""
NEVER_EXPIRES = 253_402_300_799.0
"""The last second of the year 9999, for stores whose time to live is 0, where nothing expires."""


def expiry_time(expires: float, now: float, ttl: float) -> float:
    return expires or (now + ttl if ttl else NEVER_EXPIRES)


def owner_excess(sizes: Mapping[str, int], excess: int) -> dict[str, int]:
    """How many bytes of each owner a store removes to become smaller by `excess`: those with the most bytes lose down
    to one level, and owners below it lose nothing. So nobody can push out what others have stored."""
    largest = sorted(sizes, key=lambda owner: sizes[owner], reverse=True)
    total = level = 0
    for number, owner in enumerate(largest, 1):
        total += sizes[owner]
        following = sizes[largest[number]] if number < len(largest) else 0
        if total - number * following >= excess:
            level = max(0, (total - excess) // number)
            break
    return {owner: sizes[owner] - level for owner in largest if sizes[owner] > level}


@final
class StoreDown(Struct, frozen=True):
    """The store cannot be reached or read; `reason` says why and contains no secret."""

    reason: str
    is_busy: bool = False
    """Does it work, but not for all who ask at the same time? Clients can bring this about, so it opens no limit."""


Entries: TypeAlias = list[Entry] | StoreDown


class KindStats(Struct, frozen=True):
    kind: str
    entries: int
    bytes: int


class StoreStats(Struct, frozen=True, kw_only=True):
    where: str
    """The file or the database, without a password."""
    version: int
    kinds: tuple[KindStats, ...]
    owners: int
    expired: int
    """Number of entries that the next sweep removes."""
    oldest: float | None
    size: int
    """Bytes on the disk."""
    limit: int
    """`max_bytes`; 0 means no limit."""
    encrypted: bool


class SweepResult(Struct, frozen=True):
    """How many entries a sweep removed: expired ones, and the oldest ones of a store that was too large."""

    expired: int
    crowded: int


Value = TypeVar("Value")
UNLIMITED = 2**62
"""A `max_bytes` that no answer of a store reaches."""


class Rows(Protocol):
    """The tables of a database. Statements are in SQL that both take, with `$1` and the names of PostgreSQL."""

    async def fetch(self, statement: str, *values: object) -> Sequence[Any]: ...


class Store(Protocol):
    """Every operation is atomic, ignores expired entries, and returns `StoreDown` instead of raising."""

    async def get(self, owner: str, kind: str, ids: Sequence[str]) -> Entries:
        """The entries with these ids that exist, each once, in the order of the ids."""

    async def put(
        self, entries: Sequence[Entry] = (), required_marks: tuple[str, ...] = (), appended: Sequence[Entry] = ()
    ) -> bool | StoreDown:
        """Write entries; existing ones with the same name are replaced. With `required_marks`, only if the first entry
        exists and has one of these marks; otherwise nothing is written and the result is False. `appended` are written
        in the same transaction, after all other children of their parent: the store sets `place`, in the order of the
        list, and gives no place twice when two gateways append at the same time. If the store would become larger than
        `max_bytes`, entries of the owners with the most bytes are removed, those that expire first."""

    async def add(self, entry: Entry) -> bool | StoreDown:
        """Write an entry; False if there is one with the same name already. Of two gateways that add it at the same
        time, one gets False."""

    async def get_chain(self, owner: str, kind: str, id: str, limit: int, max_bytes: int = UNLIMITED) -> Entries:
        """The entry and its ancestors by `parent`, oldest first, at most `limit`; empty if the entry does not exist.
        A missing ancestor ends the chain, and so does the one with which the bodies reach `max_bytes`: then the first
        entry names a parent."""

    async def get_children(
        self, owner: str, kind: str, parent: str, after: int | None = None, max_bytes: int = UNLIMITED
    ) -> Entries:
        """The entries with this parent, ordered by place, starting after place `after`, up to the one with which the
        bodies reach `max_bytes`."""

    async def delete(self, owner: str, kind: str, ids: Sequence[str]) -> int | StoreDown:
        """Delete these entries, and those of other kinds whose parent is one of them; returns how many of `ids`
        existed."""

    async def touch(self, owner: str, kind: str, ids: Sequence[str], expires: float) -> StoreDown | None:
        """Extend the life of these entries to at least `expires`; 0 means the default time to live from now."""

    async def sweep(self) -> SweepResult | StoreDown:
        """Remove expired entries, and the oldest ones of the largest owners if the store is larger than
        `max_bytes`."""

    async def stats(self) -> StoreStats | StoreDown: ...

    def export(self, owner: str | None = None) -> AsyncIterator[Entry | StoreDown]:
        """All entries, or those of one owner, decrypted and in a stable order."""

    async def run_sql(
        self, work: Callable[[Rows, float], Coroutine[Any, Any, Value]], writes: bool = False, is_long: bool = False
    ) -> Value | StoreDown:
        """Do something with the tables of a feature, which gets the current time, too: one after another if it writes.
        `is_long` is for operations that read a whole table."""

    async def close(self) -> None: ...


@runtime_checkable
class SecretStore(Store, Protocol):
    """A store that also has secrets of the installation, for gateways that share nothing else."""

    async def load_secret(self, name: str, new: bytes) -> bytes | StoreDown:
        """The secret with this name; if there is none yet, `new` becomes it. All gateways get the same one. It never
        expires, and exports do not contain it."""


@runtime_checkable
class LocalStore(Store, Protocol):
    """A store on the disk of this gateway: if it cannot be used, another gateway may be better off."""

    @property
    def replacement(self) -> str:
        """What has happened to its file while the gateway ran: it was removed, or replaced; "" if nothing has."""

    async def check_usable(self) -> StoreDown | None:
        """Could entries be written now? Nothing is."""


STORE_DISABLED = StoreDown("this gateway keeps nothing (`[store] url` is `none`, as always inside of a program)")


# --- encryption ---

_PREFIX = b"\0TW"
"""Every stored body that differs from the given one starts with this. A plain body that happens to start with it gets
`_PLAIN_PREFIX` in front."""
_ENCRYPTED_PREFIX, _PLAIN_PREFIX = _PREFIX + b"E1", _PREFIX + b"P1"
_KEY_NAME_LENGTH, _NONCE_LENGTH = 8, 12


class BodyCipher:
    """Encrypts bodies with the first key and decrypts them with any; without keys, bodies are stored as they are.
    `key_env` is the environment variable of the keys, for error texts."""

    def __init__(self, keys: Sequence[str] = (), key_env: str = "") -> None:
        self._key_env = key_env
        self._ciphers = dict(_derive_cipher(key) for key in keys)
        self._write_key_name = next(iter(self._ciphers), b"")
        self.has_keys = bool(keys)

    def encrypt_all(self, entries: Sequence[Entry]) -> list[Entry]:
        """The entries with the bodies to store."""
        return [replace(entry, body=self._encrypt(entry)) if entry.body else entry for entry in entries]

    def _encrypt(self, entry: Entry) -> bytes:
        if not self._write_key_name:
            return _PLAIN_PREFIX + entry.body if entry.body.startswith(_PREFIX) else entry.body
        nonce = os.urandom(_NONCE_LENGTH)
        ciphertext = self._ciphers[self._write_key_name].encrypt(nonce, entry.body, _associated_data(entry))
        return _ENCRYPTED_PREFIX + self._write_key_name + nonce + ciphertext

    def is_current(self, body: bytes) -> bool:
        """Is a stored body encrypted with the key that encrypts now, if there is one?"""
        return not self._write_key_name or body.startswith(_ENCRYPTED_PREFIX + self._write_key_name)

    def decrypt_all(self, entries: Entries) -> Entries:
        if isinstance(entries, StoreDown):
            return entries
        decrypted: list[Entry] = []
        for entry in entries:
            clear = self.decrypt(entry)
            if isinstance(clear, StoreDown):
                return clear
            decrypted.append(clear)
        return decrypted

    def decrypt(self, entry: Entry) -> Entry | StoreDown:
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
            fix = f"set {self._key_env}" if self._key_env else "name the variable that contains it in [store] key_env"
            why = f"there is no key: {fix}"
            if self._ciphers:
                why = f"no key in {self._key_env} fits: add the key it was written with, after a comma"
            return StoreDown(f"{label} is encrypted, and {why}")
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  an optional extra

        nonce, data = body[start : start + _NONCE_LENGTH], body[start + _NONCE_LENGTH :]
        try:
            return replace(entry, body=cipher.decrypt(nonce, data, _associated_data(entry)))
        except (InvalidTag, ValueError):  # ValueError: the nonce is too short
            return StoreDown(f"{label} cannot be decrypted: its body or its name was changed in the store")


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


NO_CIPHER = BodyCipher()
