"""Which files of a working folder their user trusts, and what a configuration may do in his name.

A folder that was cloned or unpacked can bring a `toolwire.toml` or an agent's program that a stranger wrote. Neither is
used until the user has said so. That is remembered by place and content, in the user's own state folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from toolwire.gateway.settings.config import Config, Power, Provider
from toolwire.gateway.settings.problems import TomlTable
from toolwire.gateway.settings.store import state_folder

RECORD_NAME = "trusted.json"
_WORD = re.compile(r"\w+", re.ASCII)


# --- the record -------------------------------------------------------------------------------------------------------


def hash_text(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def hash_program(program: Path) -> str:
    """It covers the program's own file, not what that loads; "" if it cannot be read."""
    try:
        with program.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def is_trusted(place: Path, digest: str, environ: Mapping[str, str]) -> bool:
    """Did the user trust what is at this place, with exactly this content?"""
    return bool(digest) and _read_record(environ).get(_name_place(place)) == digest


def remember_trust(place: Path, digest: str, environ: Mapping[str, str]) -> None:
    """Raises OSError."""
    record = {**_read_record(environ), _name_place(place): digest}
    folder = state_folder(environ)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    number, name = tempfile.mkstemp(prefix=f".{RECORD_NAME}.", dir=folder)  # mode 0600
    with open(number, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(record)))
    os.replace(name, folder / RECORD_NAME)


def _read_record(environ: Mapping[str, str]) -> dict[str, str]:
    try:
        return msgspec.json.decode((state_folder(environ) / RECORD_NAME).read_bytes(), type=dict[str, str])
    except (OSError, ValueError, RecursionError):  # nothing is trusted
        return {}


def _name_place(place: Path) -> str:
    """The real folder and the name. A link keeps its own place: paths in a configuration are relative to that."""
    return str(place.parent.resolve() / place.name)


# --- where a file lies ------------------------------------------------------------------------------------------------


def lies_in_folder(path: Path, folder: Path, environ: Mapping[str, str]) -> bool:
    """Is a file in a folder or below it, so that whoever may write in the folder may write the file? Everything is
    below the root, and what is the user's own is below his home: there, only the folder itself counts."""
    folder, home = folder.resolve(), Path(environ.get("HOME") or "/").resolve()
    parents = (path.parent.resolve(), path.resolve().parent)  # of a link and of what it leads to
    if folder == home or folder in home.parents:
        return folder in parents
    ways = (*parents, *(link.parent.resolve() for link in _find_links(path)))
    return any(folder in (way, *way.parents) for way in ways)


def _find_links(path: Path) -> set[Path]:
    """All links on the way to a file: whoever may write in the folder of one can lead the way elsewhere."""
    found: set[Path] = set()
    waiting = [path.absolute()]
    while waiting:
        one = waiting.pop()
        new = {part for part in (one, *one.parents) if part.is_symlink()} - found
        found |= new
        waiting += [link.parent / link.readlink() for link in new]
    return found


# --- what a configuration does ----------------------------------------------------------------------------------------


def list_powers(config: Config) -> list[Power]:
    return [
        *(power for provider in config.providers.values() for power in _provider_powers(provider)),
        *(power for section in config.sections.values() for power in section.list_powers()),
    ]


def find_new_powers(config: Config, known: Config) -> list[Power]:
    """What a configuration does that the known one does not."""
    old = {power.identity for power in list_powers(known)}
    return [power for power in list_powers(config) if power.identity not in old]


def _provider_powers(provider: Provider) -> Iterator[Power]:
    for account in provider.each_account:
        access = account.access
        if not account.api_key_env and not account.forward_auth and not access.method:
            continue  # whoever wrote the file knows a key that is in it
        key = account.api_key_env or access.label or "the key of each client"
        if access.command:
            command = " ".join(access.command)
            yield Power(hash_text(repr(access.command)), f"[providers.{account.name}]", f"start `{command}`")
        is_ready = bool(account.api_key or access.method) or account.forward_auth
        for protocol, url in account.base_urls.items():
            proxy = account.proxies.get(protocol, "")
            parts = (account.api_key.reveal(), account.forward_auth, url, proxy, account.ca_file, access)
            what = f"send {key} to {url}{' by a proxy' if proxy else ''}"
            yield Power(hash_text(repr(parts)), f"[providers.{account.name}]", what, is_ready)


def find_named_variables(tables: TomlTable, environ: Mapping[str, str]) -> list[str]:
    """The environment variables that are set and that a file names, as words in any of its texts."""
    return sorted({word for text in _list_texts(tables) for word in _WORD.findall(text)} & environ.keys())


def _list_texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_texts(item)
