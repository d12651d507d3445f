"""The keys of clients, `[[server.keys]]`: making and reading them. The file has their hashes only."""

from __future__ import annotations

import hashlib
import re
import secrets
import string
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import product

from toolwire.gateway.config.config import ClientKey, Config
from toolwire.gateway.config.problems import ProblemCollector
from toolwire.gateway.config.toml_text import write_values

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
HASH_HINT = f"`{NEW_KEY_COMMAND}` makes a key, `toolwire check-config --hash-key` hashes one that you have"
NAME_RULE = "the name of a key must have letters, and no control characters"
_ALPHABET = string.ascii_letters + string.digits
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_PLACEHOLDER_KEYS = tuple(
    """key api-key apikey my-key my-api-key your-key your-api-key client-key secret my-secret password passwd token test
    testing example demo dummy default changeme change-me replace-me todo none null undefined nil empty anything no-key
    not-needed toolwire admin root user guest public open ollama lm-studio vllm sk-1234 sk-key sk-test sk-xxx xxx xxxx 0
    1 1234 12345 123456 12345678 123456789 1234567890 abc abc123 qwerty letmein foo bar foobar hello""".split()
)


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
    return "[[server.keys]]\n" + write_values({"name": key.name, "sha256": key.sha256, "models": [*key.models]})


def find_key(key: str, keys: Iterable[ClientKey]) -> ClientKey | None:
    sha256 = hash_key(key)
    return next((known for known in keys if known.sha256 == sha256), None)


# --- reading them -----------------------------------------------------------------------------------------------------


def read_client_keys(tables: object, place: ProblemCollector) -> tuple[ClientKey, ...]:
    """The keys of `[[server.keys]]`, checked."""
    if not isinstance(tables, list):
        place.add("`server.keys` must be a list of tables", "write `[[server.keys]]`")
        return ()
    keys: dict[str, ClientKey] = {}
    hashes: set[str] = set()
    for number, table in enumerate(tables):
        given = place.at(number).read_fields(table, ClientKey)
        if given is None:
            continue
        key = ClientKey(**{**given, "sha256": given["sha256"].lower()})
        hint = HASH_HINT
        if not is_hash(key.sha256):
            place.at(number, "sha256").add("not a SHA-256 hash: it must have 64 hexadecimal digits", hint)
        elif key.sha256 in guessable_hashes():
            what = "the hash of an empty key, or of one that everybody would try first"
            place.at(number, "sha256").add(what, hint)
        elif key.sha256 in hashes:
            place.at(number, "sha256").add("this key is listed twice", "give each client a key of its own")
        if not is_key_name(key.name):
            place.at(number, "name").add(NAME_RULE)
        if key.name in keys:
            hint = "the log identifies clients by these names"
            place.at(number, "name").add(f"two keys have the name `{key.name}`", hint)
        keys[key.name] = key
        hashes.add(key.sha256)
    return tuple(keys.values())


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


# --- keys that are not for clients ------------------------------------------------------------------------------------


def find_client_variable(config: Config, environ: Mapping[str, str]) -> str:
    """The variable that has a client's key; empty if none is set."""
    if environ.get(CLIENT_KEY_VARIABLE):
        return CLIENT_KEY_VARIABLE
    is_taken = OLD_CLIENT_KEY_VARIABLE in (config.store.key_env, config.server.secret_env)
    return "" if is_taken or not environ.get(OLD_CLIENT_KEY_VARIABLE) else OLD_CLIENT_KEY_VARIABLE


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
        for secret in filter(None, map(str.strip, environ.get(variable, "").split(","))):
            if client_variable and secret == environ[client_variable].strip():
                place.add(f"{variable} and {client_variable} have the same value", hint)
            elif (key := find_key(secret, config.server.keys)) is not None:
                place.add(f"the value of {variable} is the key of the client `{key.name}`", hint)
