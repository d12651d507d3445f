"""Changes of client keys in the store, as values: each takes the tables of all keys, and gives the new key or says why
not. `KeyRecords.change` does it in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.features.keys.key_records import EditKey, KeyEdit, KeyRefused
from toolwire.gateway.settings.client_keys import describe_change, read_stored_keys
from toolwire.gateway.settings.config import ClientKey
from toolwire.gateway.settings.problems import suggest_name
from toolwire.gateway.settings.times import format_time

Tables = Sequence[Mapping[str, object]]


def add_key(key: ClientKey) -> EditKey:
    def edit(tables: Tables) -> KeyEdit | KeyRefused:
        if any(table["name"] == key.name for table in tables):
            what = f"the store has a key with the name `{key.name}` already"
            return KeyRefused(what, f"choose another name; `toolwire keys rotate {key.name}` makes a new key for it")
        return _check_edit(None, key)

    return edit


def change_fields(
    name: str, fields: Mapping[str, object], amounts: Mapping[str, float | None] = EMPTY_MAPPING
) -> EditKey:
    """Other values for fields, and for amounts of its limits; the rest of both stays."""
    return _change_key(name, lambda key: replace(key, **fields, limits=replace(key.limits, **amounts)))


def rotate_key(name: str, sha256: str, now: float, grace: float) -> EditKey:
    """A new key for the client. The old one works for `grace` more seconds, and what it has stored stays reachable."""

    def rotate(key: ClientKey) -> ClientKey:
        old = {"old_sha256": key.sha256, "old_until": format_time(now + grace)} if grace else {}
        cleared = {"old_sha256": "", "old_until": ""}
        return replace(key, sha256=sha256, first_sha256=key.first_sha256 or key.sha256, **(cleared | old))

    return _change_key(name, rotate)


def _change_key(name: str, change: Callable[[ClientKey], ClientKey]) -> EditKey:
    def edit(tables: Tables) -> KeyEdit | KeyRefused:
        table = next((table for table in tables if table["name"] == name), None)
        if table is None:
            known = [str(table["name"]) for table in tables]
            return KeyRefused(f"the store has no key with the name `{name}`", suggest_name(name, known))
        keys, problems = read_stored_keys([table], ())
        if not keys:
            what = "; ".join(f"{problem.location}: {problem.message}" for problem in problems)
            return KeyRefused(f"the key cannot be read: {what}", "a newer version of toolwire may have written it")
        return _check_edit(keys[0], change(keys[0]))

    return edit


def _check_edit(before: ClientKey | None, after: ClientKey) -> KeyEdit | KeyRefused:
    detail = describe_change(before, after)
    if before == after:
        what = f"nothing changes: the key `{after.name}` has these settings already"
        return KeyRefused(what, "`toolwire keys list` shows them")
    return KeyEdit(after, detail)
