"""The keys of clients, `[[server.keys]]`: making and reading them. The file has their hashes only."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from itertools import product
from typing import Any

from msgspec import NODEFAULT, Struct, field
from msgspec.structs import asdict, fields

from toolwire.gateway.settings.config import ClientKey, Config, LimitAmounts, ServerSettings
from toolwire.gateway.settings.problems import Problem, ProblemCollector, suggest_name
from toolwire.gateway.settings.store import NO_STORE, read_secrets, store_url
from toolwire.gateway.settings.times import TIME_HINT, parse_time
from toolwire.gateway.settings.toml_text import Toml, write_values
from toolwire.policy.rules import is_glob

CLIENT_KEY_VARIABLE = "TOOLWIRE_CLIENT_KEY"
"""The environment variable with a client's own key: `toolwire run` reads it, and some agents do."""
OLD_CLIENT_KEY_VARIABLE = "TOOLWIRE_KEY"
"""Its old name. The documentation also used that one for the key of the store."""
KEY_PREFIX = "tw-"
"""So that people and secret scanners recognise a key."""
KEY_LENGTH = 43
"""Characters after the prefix: 256 bits."""
RUN_KEY_NAME = "toolwire run"
"""The client for which `toolwire run` makes a key, if the file has keys and the user gives none."""
NEW_KEY_COMMAND = "toolwire keys new NAME --write"
NEW_STORED_KEY_COMMAND = "toolwire keys new NAME --store"
HASH_HINT = f"`{NEW_KEY_COMMAND}` makes a key, `toolwire keys hash` hashes one that you have"
NAME_RULE = "the name of a key must have letters, and no control characters"
TEAM_RULE = "the name of a team must have letters, and no control characters"
_TIME_FIELDS = ("expires", "old_until")
_ALPHABET = string.ascii_letters + string.digits
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_PLACEHOLDER_KEYS = tuple(
    """key api-key apikey my-key my-api-key your-key your-api-key client-key secret my-secret password passwd token test
    testing example demo dummy default changeme change-me replace-me todo none null undefined nil empty anything no-key
    not-needed toolwire admin root user guest public open ollama lm-studio vllm sk-1234 sk-key sk-test sk-xxx xxx xxxx 0
    1 1234 12345 123456 12345678 123456789 1234567890 abc abc123 qwerty letmein foo bar foobar hello""".split()
)


class ClientNames(Struct, frozen=True):
    """The client keys and teams that other sections of the file can name."""

    keys: tuple[str, ...] = ()
    teams: tuple[str, ...] = ()
    need_keys: bool = False
    """Must every client have a key?"""
    is_complete: bool = True
    """Are these all? The store may have more."""

    def check_globs(self, what: str, known: Collection[str], globs: Sequence[str], place: ProblemCollector) -> None:
        if self.is_complete:
            check_globs(what, known, globs, place)


NO_CLIENTS = ClientNames()


def read_client_names(server: ServerSettings) -> ClientNames:
    keys = tuple(key.name for key in server.keys)
    teams = tuple({key.team: None for key in server.keys if key.team})
    return ClientNames(keys, teams, server.needs_keys, is_complete=not server.store_keys)


def check_globs(what: str, known: Collection[str], globs: Sequence[str], place: ProblemCollector) -> None:
    """Warn of names and patterns that match nothing."""
    for number, glob in enumerate(globs):
        if not any(fnmatchcase(name, glob) for name in known):
            place.at(number).add(f"there is no {what} `{glob}`", suggest_name(glob, known), "warning")


# --- making keys ------------------------------------------------------------------------------------------------------


def make_key() -> str:
    return KEY_PREFIX + "".join(secrets.choice(_ALPHABET) for _ in range(KEY_LENGTH))


def hash_key(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def is_hash(text: str) -> bool:
    return bool(_SHA256.fullmatch(text))


def is_key_name(name: str) -> bool:
    return bool(name.strip()) and name.isprintable()


def write_key_table(key: ClientKey) -> str:
    """The lines for the configuration file."""
    return "[[server.keys]]\n" + write_values(written_fields(key))


def written_fields(key: ClientKey) -> dict[str, Toml]:
    """The fields of a key that say something: the needed ones, `models`, and those that are not the default."""
    values = {one.name: getattr(key, one.name) for one in fields(ClientKey)}
    defaults = {one.name: one.default for one in fields(ClientKey) if one.name != "models"}
    shown = {name: value for name, value in values.items() if value != defaults.get(name, NODEFAULT)}
    return {name: _write_field(value) for name, value in shown.items()}


def _write_field(value: Any) -> Toml:
    if isinstance(value, LimitAmounts):
        return {name: amount for name, amount in asdict(value).items() if amount is not None}
    return [*value] if isinstance(value, tuple) else value


def describe_change(before: ClientKey | None, after: ClientKey) -> str:
    """What is different, for people and without any hash: `models fast, claude-*; expires 2026-12-31`."""
    old = written_fields(before) if before is not None else {}
    new = written_fields(after)
    changed = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    shown = [name for name in changed if name != "name" and not name.endswith("sha256")]
    words = [f"{name} {_show_value(getattr(after, name))}" for name in shown]
    return "; ".join((["a new key"] if before is not None and "sha256" in changed else []) + words)


def list_key_changes(before: Iterable[ClientKey], after: Iterable[ClientKey]) -> list[tuple[str, str, str]]:
    """What is different between two lists of keys: the name of each changed key, the action, and the details."""
    old, new = {key.name: key for key in before}, {key.name: key for key in after}
    changed = [key for key in new.values() if key != old.get(key.name)]
    rows = [
        (key.name, "change" if key.name in old else "new", describe_change(old.get(key.name), key)) for key in changed
    ]
    return rows + [(name, "remove", "") for name in old if name not in new]


def _show_value(value: object) -> str:
    if isinstance(value, LimitAmounts):
        amounts = {name: amount for name, amount in asdict(value).items() if amount is not None}
        return ", ".join(f"{name} {amount:g}" for name, amount in amounts.items()) or "none"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value) or "none"


def find_key(key: str, keys: Iterable[ClientKey]) -> ClientKey | None:
    sha256 = hash_key(key)
    return next((known for known in keys if sha256 in (known.sha256, known.old_sha256)), None)


# --- proving them -----------------------------------------------------------------------------------------------------
#
# A client asks whether a gateway knows its key before it sends the key: anything can listen on a port. Both sides sign
# a random text with the hash of the key, which is all that the gateway has. The client signs too, so that nobody
# without the key gets signatures to guess it from.

CHALLENGE_HEADER, PROOF_HEADER = "x-toolwire-challenge", "x-toolwire-proof"
CHALLENGE_DIGITS = 8
"""Digits of the hash by which a gateway finds the key. `toolwire keys list` shows as many."""
_CHALLENGE = re.compile(r"([0-9a-f]{8}) ([0-9a-f]{32}) ([0-9a-f]{64})")


class KeyChallenge:
    """One question of a client to a gateway: do you know my key?"""

    def __init__(self, key: str) -> None:
        self._digest, self._nonce = hash_key(key), secrets.token_hex(16)

    @property
    def header(self) -> str:
        signed = _sign(self._digest, "client", self._nonce)
        return f"{self._digest[:CHALLENGE_DIGITS]} {self._nonce} {signed}"

    def is_answered_by(self, proof: str) -> bool:
        return hmac.compare_digest(_sign(self._digest, "gateway", self._nonce).encode(), proof.encode())


def answer_challenge(header: str, find_digests: Callable[[str], Iterable[str]]) -> str:
    """The proof that a gateway knows the key; "" if it does not. `find_digests` gives the hashes with this start."""
    asked = _CHALLENGE.fullmatch(header)
    for digest in find_digests(asked[1]) if asked is not None else ():
        if asked is not None and hmac.compare_digest(_sign(digest, "client", asked[2]), asked[3]):
            return _sign(digest, "gateway", asked[2])
    return ""


def _sign(digest: str, role: str, nonce: str) -> str:
    return hmac.new(bytes.fromhex(digest), f"toolwire {role} {nonce}".encode(), "sha256").hexdigest()


# --- reading them -----------------------------------------------------------------------------------------------------


class SeenKeys(Struct):
    """What the keys before this one have: no two may share it."""

    names: set[str] = field(default_factory=set)
    hashes: set[str] = field(default_factory=set)
    owners: set[str] = field(default_factory=set)

    def add(self, key: ClientKey) -> None:
        self.names.add(key.name)
        self.hashes |= {key.sha256, key.old_sha256} - {""}
        self.owners.add(key.first_sha256 or key.sha256)


def read_client_keys(tables: object, place: ProblemCollector) -> tuple[ClientKey, ...]:
    """The keys of `[[server.keys]]`, checked."""
    if not isinstance(tables, list):
        place.add("`server.keys` must be a list of tables", "write `[[server.keys]]`")
        return ()
    seen = SeenKeys()
    keys: dict[str, ClientKey] = {}
    for number, table in enumerate(tables):
        key = _read_key(table, seen, place.at(number))
        if key is not None:
            keys[key.name] = key
            seen.add(key)
    return tuple(keys.values())


def read_stored_keys(
    tables: Iterable[Mapping[str, object]], known: Iterable[ClientKey]
) -> tuple[tuple[ClientKey, ...], tuple[Problem, ...]]:
    """The keys of the store, checked as those of the file are. One that has a problem is left out: it may be of a newer
    version, or have the name of a `known` key of the file."""
    seen = SeenKeys()
    keys: list[ClientKey] = []
    problems: list[Problem] = []
    for one in known:
        seen.add(one)
    for table in tables:
        collector = ProblemCollector(None)
        key = _read_key(table, seen, collector.at(str(table.get("name", ""))))
        if key is not None and not collector.has_errors:
            keys.append(key)
            seen.add(key)
        problems += collector.problems
    return tuple(keys), tuple(problems)


def _read_key(table: object, seen: SeenKeys, place: ProblemCollector) -> ClientKey | None:
    given = place.read_fields(_write_dates(table), ClientKey, ("limits",))
    if given is None:
        return None
    limits = place.at("limits").read_fields(table.get("limits", {}) if isinstance(table, dict) else {}, LimitAmounts)
    given = {name: value.lower() if name.endswith("sha256") else value for name, value in given.items()}
    key = ClientKey(**given, limits=LimitAmounts(**limits or {}))
    if limits and is_glob(key.name):
        place.at("limits").add("a key with limits cannot have `*` or `?` in its name", "choose another name")
    _check_hashes(key, seen, place)
    _check_times(key, place)
    if not is_key_name(key.name):
        place.at("name").add(NAME_RULE)
    if key.team and not is_key_name(key.team):
        place.at("team").add(TEAM_RULE)
    if key.name in seen.names:
        hint = "the log identifies clients by these names"
        place.at("name").add(f"two keys have the name `{key.name}`", hint)
    return key


def _write_dates(table: object) -> object:
    """TOML has dates of its own: `expires = 2026-12-31` means the same as with quotes."""
    if not isinstance(table, dict):
        return table
    return {
        name: value.isoformat() if name in _TIME_FIELDS and isinstance(value, date) else value
        for name, value in table.items()
    }


def _check_hashes(key: ClientKey, seen: SeenKeys, place: ProblemCollector) -> None:
    for name in ("sha256", "old_sha256", "first_sha256"):
        digest = getattr(key, name)
        if not digest and name != "sha256":
            continue
        if not is_hash(digest):
            place.at(name).add("not a SHA-256 hash: it must have 64 hexadecimal digits", HASH_HINT)
        elif digest in guessable_hashes():
            what = "the hash of an empty key, or of one that everybody would try first"
            place.at(name).add(what, HASH_HINT)
        elif name != "first_sha256" and digest in seen.hashes:
            place.at(name).add("this key is listed twice", "give each client a key of its own")
    if (key.first_sha256 or key.sha256) in seen.owners and key.sha256 not in seen.hashes:
        what = "another key has the same first key, so each could reach what the other has stored"
        hint = "a first key can belong to one client only"
        place.at("first_sha256" if key.first_sha256 else "sha256").add(what, hint)


def _check_times(key: ClientKey, place: ProblemCollector) -> None:
    for name in _TIME_FIELDS:
        text = getattr(key, name)
        if text and parse_time(text) is None:
            place.at(name).add(f"`{text[:40]}` is not a time", TIME_HINT)
    if key.old_sha256 and not key.old_until:
        place.at("old_sha256").add("`old_until` is missing: the old key would not work at all", TIME_HINT)
    if key.old_until and not key.old_sha256:
        place.at("old_until").add("`old_sha256` is missing: it says which key is the old one", "add it, or remove this")


@cache
def guessable_hashes() -> frozenset[str]:
    """The hashes of no key at all, of white space (`echo "$KEY" | sha256sum` without such a variable), and of keys that
    stand in examples."""
    blanks = ["".join(chars) for count in range(5) for chars in product(" \t\r\n", repeat=count)]
    spelled = {form for word in _PLACEHOLDER_KEYS for form in (word, word.replace("-", "_"))}
    words = {form for word in spelled for form in (word, word.upper(), word.title(), word.capitalize())}
    texts = [
        *blanks,
        *(f"{start}{word}{end}" for word in words for start in ("", "Bearer ") for end in ("", "\n", "\r\n")),
    ]
    return frozenset(hashlib.sha256(text.encode()).hexdigest() for text in (*texts, "Bearer", "Bearer ", "Bearer \n"))


def check_rights(config: Config, environ: Mapping[str, str], place: ProblemCollector) -> None:
    """Check that there is a store for keys, and warn of providers of a key that are not there."""
    if config.server.store_keys and store_url(config.store, environ) == NO_STORE:
        place.at("store_keys").add("there is no store: its `url` is `none`", "remove `url` in [store]")
    for number, key in enumerate(config.server.keys):
        check_globs("provider", config.providers, key.providers, place.at("keys", number, "providers"))


# --- keys that are not for clients ------------------------------------------------------------------------------------


def find_client_variable(config: Config, environ: Mapping[str, str]) -> str:
    """The variable that has a client's key; empty if none is set."""
    if environ.get(CLIENT_KEY_VARIABLE):
        return CLIENT_KEY_VARIABLE
    is_taken = OLD_CLIENT_KEY_VARIABLE in (config.store.key_env, config.server.secret_env)
    return "" if is_taken or not environ.get(OLD_CLIENT_KEY_VARIABLE) else OLD_CLIENT_KEY_VARIABLE


def check_separate_key(digest: str, server: ServerSettings, place: ProblemCollector, client_hint: str) -> None:
    """Check the hash of a key that must not be the key of a client."""
    if digest and not is_hash(digest):
        hint = "create it with `toolwire keys hash`"
        place.add("not a SHA-256 hash: it must have 64 hexadecimal digits", hint)
    elif digest in guessable_hashes():
        place.add("the hash of an empty key, or of one that everybody would try first")
    elif digest and any(key.sha256 == digest for key in server.keys):
        place.add("this is the key of a client, too", client_hint)


def check_secrets(config: Config, environ: Mapping[str, str], collector: ProblemCollector) -> None:
    """Refuse a client's key that also encrypts the store or signs for the gateway: every agent gets it."""
    for section, name, variable, example in (
        ("store", "key_env", config.store.key_env, "TOOLWIRE_STORE_KEY"),
        ("server", "secret_env", config.server.secret_env, "TOOLWIRE_SECRET"),
    ):
        if not variable:
            continue
        place = collector.at(section, name)
        if variable == CLIENT_KEY_VARIABLE:
            what = f"{variable} is the variable of a client's key, which agents get to see"
            place.add(what, f"name another variable, such as {example}")
            continue
        if variable == OLD_CLIENT_KEY_VARIABLE:
            what = f"{variable} was the variable of a client's key"
            place.add(what, f"name another variable, such as {example}", "warning")
        hint = "create another one with `openssl rand -hex 32`"
        client_variable = find_client_variable(config, environ)
        for secret in read_secrets(variable, environ):
            if client_variable and secret == environ[client_variable].strip():
                place.add(f"{variable} and {client_variable} have the same value", hint)
            elif (key := find_key(secret, config.server.keys)) is not None:
                place.add(f"the value of {variable} is the key of the client `{key.name}`", hint)
