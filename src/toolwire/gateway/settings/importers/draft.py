"""The configuration that an importer writes, and a reader of its input that forgets no key.

An importer takes keys from `InputTable`s. A key that it neither takes nor leaves with a reason is reported as unknown,
so nothing is dropped silently. Values of the input that may be secret never reach the output or a note: the output
names an environment variable instead, and a note says which value it must have.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.settings.address import check_base_url, is_loopback
from toolwire.gateway.settings.client_keys import NEW_KEY_COMMAND, guessable_hashes, hash_key
from toolwire.gateway.settings.providers import KnownServer, known_servers
from toolwire.gateway.settings.store import MIN_KEY_LENGTH
from toolwire.gateway.settings.toml_text import Toml, write_table, write_values

NoteKind = Literal["not converted", "changed", "to do"]
Value = TypeVar("Value")

_SECRET = re.compile(r"(sk-|sk_|xox|gh[opsu]_|github_pat_|glpat-|AKIA|AIza|hf_|gsk_|nvapi-|eyJ)\w", re.ASCII)
_SECRET_OPTION = re.compile(r"--?[\w-]*(key|token|secret|passw|auth)", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
COMMENT_WIDTH = 76
UNKNOWN_KEY = "the converter does not know this key"
NEW_KEY_HINT = f"`{NEW_KEY_COMMAND}` makes one"


class Note(NamedTuple):
    """Something that the reader must know: a key that was not converted, or what to do."""

    kind: NoteKind
    place: str
    """The key of the input."""
    text: str


class InputTable:
    """A table of the input. It remembers which of its keys were used."""

    def __init__(self, value: Mapping[object, object], path: str, draft: Draft) -> None:
        self._values = {str(key): item for key, item in value.items()}
        self._unused = dict.fromkeys(self._values)
        self.draft = draft
        self.path = path
        draft.inputs.append(self)

    def place(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def note(self, key: str, text: str, kind: NoteKind = "not converted") -> None:
        self.draft.notes.append(Note(kind, self.place(key), text))

    @property
    def remaining_keys(self) -> list[str]:
        return list(self._unused)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def take(self, key: str) -> object:
        """The value of a key, which counts as converted now; None if there is none."""
        self._unused.pop(key, None)
        return self._values.get(key)

    def leave(self, keys: Iterable[str], reason: str) -> None:
        """Report keys that have no counterpart."""
        for key in keys:
            if key in self._unused:
                self.take(key)
                self.note(key, reason)

    def leave_rest(self, reason: str) -> None:
        self.leave(self.remaining_keys, reason)

    def leave_all(self, reason: str) -> None:
        """Report that the whole table was left out."""
        self._unused.clear()
        self.draft.notes.append(Note("not converted", self.path, reason))

    def text(self, key: str) -> str:
        """A string; "" if there is none. Anything else is reported."""
        value = self.take(key)
        if value is None or isinstance(value, str):
            return clean_text(value or "")
        self.note(key, "not a string")
        return ""

    def flag(self, key: str) -> bool:
        value = self.take(key)
        if value is not None and not isinstance(value, bool):
            self.note(key, "neither true nor false")
        return value is True

    def number(self, key: str, lowest: float = 0, highest: float = 2**31) -> float | None:
        """A number, also if it is written as a string; None if there is none. Anything else is reported."""
        value = self.take(key)
        if value is None:
            return None
        try:
            found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            found = None
        if found is None or not lowest <= found <= highest:
            self.note(key, f"not a number from {lowest:g} to {highest:g}")
            return None
        return found

    def whole_number(self, key: str, lowest: int = 0, highest: int = 2**31) -> int | None:
        found = self.number(key, lowest, highest)
        return None if found is None else int(found)

    def table(self, key: str) -> InputTable:
        """The table below a key; an empty one if there is none. Anything else is reported."""
        value = self.take(key)
        if value is not None and not isinstance(value, dict):
            self.note(key, "not a table")
        return InputTable(value if isinstance(value, dict) else {}, self.place(key), self.draft)

    def items(self, key: str) -> list[tuple[str, object]]:
        """The items of a list, each with its place. Anything else is reported."""
        value = self.take(key)
        if value is not None and not isinstance(value, list):
            self.note(key, "not a list")
        listed = value if isinstance(value, list) else []
        return [(f"{self.place(key)}[{number}]", item) for number, item in enumerate(listed)]

    def tables(self, key: str) -> list[InputTable]:
        return [InputTable(item, path, self.draft) for path, item in self._items_of(key, dict, "not a table")]

    def texts(self, key: str) -> list[str]:
        return [clean_text(item) for _, item in self._items_of(key, str, "not a string")]

    def _items_of(self, key: str, kind: type[Value], problem: str) -> Iterator[tuple[str, Value]]:
        """The items of a list that are of this kind. Anything else is reported."""
        for path, item in self.items(key):
            if isinstance(item, kind):
                yield path, item
            else:
                self.draft.notes.append(Note("not converted", path, problem))


class Draft:
    """The configuration so far."""

    def __init__(self, environ: Mapping[str, str] = EMPTY_MAPPING) -> None:
        self.environ = environ
        """For addresses in environment variables; nothing else is read from it."""
        self.inputs: list[InputTable] = []
        self.notes: list[Note] = []
        self.server: dict[str, Toml] = {}
        self.timeouts: dict[str, Toml] = {}
        self.keys: list[dict[str, Toml]] = []
        self.providers: dict[str, dict[str, Toml]] = {}
        self.models: dict[str, dict[str, Toml]] = {}
        self.mcp: dict[str, dict[str, Toml]] = {}
        self._variables: dict[tuple[str, str], str] = {}
        """Names of environment variables by the secret that they must have, and by the name that fits its server: keys
        of two servers may be the same placeholder, and a real key must not reach the other server."""

    # --- secrets ---

    def variable_for(self, secret: str, suggestion: str, place: str) -> str:
        """The name of an environment variable for a secret of the input."""
        if (secret, suggestion) in self._variables:
            return self._variables[secret, suggestion]
        base = re.sub(r"[^A-Z0-9]+", "_", suggestion.upper()).strip("_") or "API_KEY"
        base = base if _VARIABLE.fullmatch(base) else f"KEY_{base}"
        name, number = base, 2
        while name in self._variables.values():
            name, number = f"{base}_{number}", number + 1
        self._variables[secret, suggestion] = name
        self.notes.append(Note("to do", place, f"set the environment variable {name} to the value of this key"))
        return name

    def write_key(
        self, key: str, variable: str, server: KnownServer | None, name: str, table: InputTable
    ) -> dict[str, Toml]:
        """`api_key_env` for the `api_key` of a provider's table: a key, or the variable that it names. Empty if it is
        the variable that is looked at anyway."""
        if variable:  # not to be chosen by `variable_for`
            self._variables.setdefault((f"${variable}", ""), variable)
        elif server is not None and server.local:
            text = f"left out: {server.title} needs no key; if yours does, set {server.key_env[0]}"
            table.note("api_key", text, "changed")
            return {}
        else:
            usual = server.key_env[0] if server is not None and server.key_env else f"{name}_API_KEY"
            variable = self.variable_for(key, usual, table.place("api_key"))
        return {} if server is not None and variable in server.key_env else {"api_key_env": variable}

    def find_address(self, variable: str, place: str) -> str:
        """The address in an environment variable, or a placeholder for it."""
        address = self.environ.get(variable, "").strip()
        if address and is_usable_url(address):
            self.notes.append(Note("changed", place, f"the address in {variable} is in the file now"))
            return address
        name = re.sub(r"[^a-z0-9]+", "-", variable.lower()).strip("-") or "address"
        placeholder = f"https://{name}.invalid"
        self.notes.append(Note("to do", place, f"replace {placeholder} by the address in {variable}"))
        return placeholder

    def add_client_key(self, key: str, variable: str, name: str, place: str) -> None:
        """Let the clients of the other gateway go on with their key, if there is one. The file has its hash only."""
        if variable:
            text = f'clients need a key: `printf %s "${variable}" | toolwire keys hash`'
            self.notes.append(Note("to do", place, text))
        if variable or not key:
            return
        digest = hash_key(key)
        if len(key) < MIN_KEY_LENGTH or digest in guessable_hashes():
            text = f"this key can be guessed: use another; {NEW_KEY_HINT}"
            self.notes.append(Note("to do", place, text))
            return
        self.keys.append({"name": name, "sha256": digest, "models": ["*"]})

    # --- providers and models ---

    def add_provider(self, name: str, table: dict[str, Toml]) -> str:
        """Add a provider, or find one with the same settings; gives its name."""
        base = re.sub(r"[/*?\s]+", "-", name).strip("-") or "provider"
        base = "loopback-server" if base == "loopback" else base
        number = 1
        while True:
            chosen = base if number == 1 else f"{base}-{number}"
            # Under a well-known name, settings that are left out would be taken from that server.
            own = {key: value for key, value in table.items() if key != "kind" or value != chosen}
            is_other = chosen in known_servers() and table.get("kind") != chosen
            if not is_other and self.providers.setdefault(chosen, own) == own:
                return chosen
            number += 1

    def add_model(self, name: str, rule: dict[str, Toml], place: str) -> None:
        if not name:
            self.notes.append(Note("not converted", place, "the model has no name"))
        else:
            self.models[name] = rule

    def add_fallbacks(self, name: str, fallbacks: Iterable[str], place: str) -> None:
        """Add fallbacks to a model. One that leads back to the model is left out: it would be a circle."""
        rule = self.models[name]
        listed = [item for item in _list_of(rule.get("fallbacks")) if isinstance(item, str)]
        for other in fallbacks:
            if other == name or self._leads_to(other, name, set()):
                text = f"`{other}` leads back to `{name}`, and fallbacks must not form a circle"
                self.notes.append(Note("not converted", place, text))
            elif other not in listed:
                listed.append(other)
                rule["fallbacks"] = list(listed)

    def _leads_to(self, start: str, end: str, seen: set[str]) -> bool:
        if start in seen:
            return False
        seen.add(start)
        following = [item for item in _list_of(self.models.get(start, {}).get("fallbacks")) if isinstance(item, str)]
        return end in following or any(self._leads_to(item, end, seen) for item in following)

    # --- the result ---

    def finish(self) -> None:
        """Report every key that nobody used."""
        for table in self.inputs:
            table.leave_rest(UNKNOWN_KEY)

    def to_toml(self, title: str) -> str:
        blocks = [_write_comment(title) + _write_comment("`toolwire doctor config` shows what it means.")]
        todo = [_write_comment(f"- {note.place}: {note.text}") for note in self.notes if note.kind == "to do"]
        if todo:
            blocks.append("".join([_write_comment("To do:"), *todo]))
        if self.server:
            blocks.append(write_table(("server",), self.server))
        if self.timeouts:
            blocks.append(write_table(("server", "timeouts"), self.timeouts))
        blocks += ["[[server.keys]]\n" + write_values(key) for key in self.keys]
        blocks += [write_table(("providers", name), table) for name, table in self.providers.items()]
        blocks += [write_table(("models", name), rule) for name, rule in self.models.items()]
        blocks += [write_table(("mcp", name), table) for name, table in self.mcp.items()]
        return "\n".join(blocks)


# --- addresses ----------------------------------------------------------------------------------------------------


def find_server_by_url(url: str) -> str:
    """The well-known server with the host and port of a URL, or ""."""
    wanted = _host_and_port(url)
    for name, server in known_servers().items():
        known = server.base_url if isinstance(server.base_url, str) else next(iter(server.base_url.values()))
        if known and _host_and_port(known) == wanted:
            return name
    return "azure" if wanted[0].endswith((".openai.azure.com", ".services.ai.azure.com")) else ""


def _host_and_port(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "", 0
    return "127.0.0.1" if is_loopback(host) else host, port or (80 if parts.scheme == "http" else 443)


def is_usable_url(url: str) -> bool:
    """Can this URL be in the file? One with a user name or a query may contain a secret."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return not check_base_url(url) and "@" not in parts.netloc and not parts.query and not _SECRET.search(parts.path)


def looks_secret(word: str) -> bool:
    """May a word of a command line be a secret, or an option that has one?"""
    return bool(_SECRET.search(word) or _SECRET_OPTION.match(word))


def name_from_url(url: str) -> str:
    """A name for a provider, made from its address."""
    host, port = _host_and_port(url)
    text = host if urlsplit(url).port is None else f"{host}-{port}"
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-") or "provider"


def clean_text(text: str) -> str:
    """Text that can be written to a file: JSON may contain half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


# --- TOML ---------------------------------------------------------------------------------------------------------


def _write_comment(text: str) -> str:
    lines = textwrap.wrap(text, COMMENT_WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)


def _list_of(value: Toml | None) -> list[Toml]:
    return value if isinstance(value, list) else []
