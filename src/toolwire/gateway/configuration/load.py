"""Finds `toolwire.toml`, reads it, and reports all its problems at once, each with its line."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.features.costs.settings import CostSettings
from toolwire.gateway.features.limits.settings import LimitSettings
from toolwire.gateway.features.mcp.settings import McpSettings
from toolwire.gateway.settings import client_keys, model_rules
from toolwire.gateway.settings.address import PLAIN_HTTP, is_exposed, is_loopback
from toolwire.gateway.settings.config import (
    Config,
    Section,
    SectionInput,
    ServerSettings,
    Timeouts,
    TranslateSettings,
)
from toolwire.gateway.settings.model_facts import add_prices, read_facts, read_prices
from toolwire.gateway.settings.policies import preset_rules, read_policies
from toolwire.gateway.settings.problems import (
    ConfigError,
    KeyPath,
    Problem,
    ProblemCollector,
    TomlLines,
    TomlTable,
    suggest_name,
)
from toolwire.gateway.settings.providers import (
    ProviderBuilder,
    embedded_providers,
    list_provider_names,
)
from toolwire.gateway.settings.store import check_variable, read_store
from toolwire.gateway.settings.trust import hash_text, is_trusted
from toolwire.gateway.surfaces.console.settings import ConsoleSettings

CONFIG_FILE_NAME = "toolwire.toml"
MAX_FILE_BYTES = 16 * 1024 * 1024
"""A file of 50,000 client keys has half of that."""
SECTIONS: tuple[type[Section], ...] = (
    CostSettings,
    LimitSettings,
    McpSettings,
    ConsoleSettings,
)
"""The settings of features and of the console, which are in their folders: a line for each."""
OWN_TABLES = (
    "server",
    "providers",
    "models",
    "translate",
    "store",
)
"""The gateway's own sections that are one table each; `[[policy]]` is a list."""
RENAMED_KEYS: Mapping[KeyPath, str] = {
    ("server", "deadlines"): "timeouts",
    ("server", "timeouts", "retries"): "all_attempts",
    ("server", "hosts"): "allowed_hosts",
    ("server", "log"): "log_format",
    ("server", "on_client_gone"): "on_disconnect",
    ("server", "rest"): "cooldown",
    ("server", "rest_after"): "cooldown_after",
    ("store", "lease"): "background_lease",
} | {place: name for section in SECTIONS for place, name in section.renamed_keys.items()}
"""Old keys that are still accepted with a warning, by their place (`*` is any name), and what they are called now."""
REMOVED_KEYS: Mapping[KeyPath, str] = {
    ("server", "max_connections"): "`max_memory` and `max_requests` limit what connections cost",
    ("server", "max_connections_per_address"): "`max_memory` and `max_requests` limit what connections cost",
    ("server", "max_queued"): "the queue is long enough for every load; `max_requests` is the limit",
    ("server", "max_requests_per_key"): "write `parallel_requests` in [[limits]] or in the key's `limits`",
    ("server", "max_requests_per_address"): "write `parallel_requests` in [[limits]], for each key",
    ("server", "retry_share"): "`retries` is the limit for one request",
    ("server", "timeouts", "request"): "a client has 60 seconds for the head of its request",
    ("server", "timeouts", "queue"): "a request waits 10 seconds for its turn",
    ("server", "unsigned_envelopes"): "what clients carry without a signature is never used",
    ("providers", "*", "auth_ttl"): "a program that knows the end of its token prints JSON with `expires_in`",
    ("console", "max_exchanges"): "`max_bytes` is the limit",
}
"""Old keys that have no effect any more, by their place as above, and what to use instead, or what holds now."""
_TOML_ERROR = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)
_DUPLICATE_ERRORS = ("Cannot overwrite a value", "Cannot declare", "Cannot mutate", "Cannot add")
"""How the messages of `tomllib` about duplicates begin."""


FileStamp: TypeAlias = tuple[int, int, int] | None
"""Changes whenever the file changes; None without a file."""


class ConfigFile(Struct, frozen=True):
    """A configuration file as it was read, once: what was judged is what is used. A worker that is replaced leaves it
    to the next one."""

    file: str
    stamp: FileStamp
    text: str

    def __repr__(self) -> str:  # the text may contain keys
        return f"ConfigFile({self.file!r})"

    @property
    def path(self) -> Path:
        return Path(self.file)

    @property
    def digest(self) -> str:
        return hash_text(self.text)


def read_opened_config(
    file: ConfigFile | None,
    environ: Mapping[str, str],
    server_overrides: Mapping[str, object] = EMPTY_MAPPING,
    routes: Mapping[str, str] = EMPTY_MAPPING,
) -> Config:
    """The configuration of a file; None is the environment alone. Raises ConfigError.

    `server_overrides` (fields of `[server]`) and `routes` (models by the name that clients use) are from the command
    line and win over the file.
    """
    text, path = (file.text, file.path) if file is not None else ("", None)
    return read_config(text, path, environ, server_overrides, routes)


def find_problems(text: str, environ: Mapping[str, str], path: Path | None = None) -> tuple[Problem, ...]:
    """The errors and warnings of a configuration that is not in a file yet; `path` is where it will be."""
    try:
        return read_config(text, path, environ, EMPTY_MAPPING, EMPTY_MAPPING).warnings
    except ConfigError as error:
        return error.problems


def read_config(
    text: str,
    path: Path | None,
    environ: Mapping[str, str],
    server_overrides: Mapping[str, object],
    routes: Mapping[str, str],
) -> Config:
    name = str(path) if path is not None else ""
    try:
        tables, lines = parse_toml(text, name)
        collector = ProblemCollector(lines if path is not None else None)
        collector.replace_old_keys(tables, RENAMED_KEYS, REMOVED_KEYS)
        config = _read_sections(tables, environ, server_overrides, routes, collector, path)
    except RecursionError:
        hint = "lists and tables can be nested only a few levels deep"
        raise ConfigError([Problem(location="toml", message="values are nested too deeply", hint=hint)], name) from None
    problems = sorted(collector.problems, key=lambda problem: problem.line)
    if collector.has_errors:
        raise ConfigError(problems, name)
    return replace(config, warnings=tuple(problems))


def parse_toml(text: str, name: str) -> tuple[dict[str, Any], TomlLines]:
    """The tables of a text, and the lines of their keys; raises ConfigError."""
    try:
        return tomllib.loads(text), TomlLines(text)
    except ValueError as error:  # an integer of thousands of digits is a ValueError, but not a TOMLDecodeError
        raise ConfigError([_toml_problem(str(error), text)], name) from None


JudgeFile: TypeAlias = Callable[[ConfigFile], bool]
"""Is a file of the working folder used, though nobody has named it?"""


def open_config_file(
    file: str | Path | None, environ: Mapping[str, str], judge: JudgeFile | None = None
) -> ConfigFile | None:
    """The file that is named, or the one to use if none is. Raises ConfigError.

    Whoever is in a cloned or unpacked folder has not chosen its `toolwire.toml`, which can start commands and send keys
    to any address. So it is left out, unless `judge` takes it; by default, unless the user trusts it.
    """
    judge = judge or (lambda found: is_trusted(found.path, found.digest, environ))
    path = Path(file) if file else find_config_file(environ)
    found = read_file(path) if path is not None else None
    is_named = file or environ.get("TOOLWIRE_CONFIG")
    if found is None or is_named or found.path.is_absolute() or judge(found):
        return found
    own = find_config_file(environ, only_own=True)
    return read_file(own) if own is not None else None


def find_config_file(environ: Mapping[str, str], only_own: bool = False) -> Path | None:
    """The first file that is there if the command line names none; `only_own` leaves out the working folder."""
    if environ.get("TOOLWIRE_CONFIG"):
        return Path(environ["TOOLWIRE_CONFIG"])
    places = config_file_places(environ)
    return next((one for one in places if (one.is_absolute() or not only_own) and not _is_missing(one)), None)


def _is_missing(place: Path) -> bool:
    """Is nothing there? What cannot be looked at, or is a folder, counts as there, and is refused when it is read: it
    may be the file with the client keys."""
    try:
        place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def config_file_places(environ: Mapping[str, str]) -> list[Path]:
    """Where the file is looked for: in the working folder, and in the user's own folder."""
    folders = (Path(environ.get("XDG_CONFIG_HOME", "")), Path(environ.get("HOME", ""), ".config"))
    # The XDG specification says to ignore relative paths: they would lead into the working folder.
    own = [folder / "toolwire" / CONFIG_FILE_NAME for folder in folders if folder.is_absolute()][:1]
    here = Path(CONFIG_FILE_NAME)
    return [*([] if any(_is_same(here, place) for place in own) else [here]), *own]


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def read_file(path: Path) -> ConfigFile:
    """Raises ConfigError."""
    stamp = file_stamp(path)  # first: what changes after it is noticed
    return ConfigFile(str(path), stamp, decode_file(read_file_bytes(path), path))


def file_stamp(path: Path) -> FileStamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def read_file_bytes(path: Path) -> bytes:
    """What is in a configuration file; raises ConfigError. Nothing is waited for: a pipe may have no writer."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(MAX_FILE_BYTES + 1) if is_file else b""
            problem = "" if is_file else "it is not a regular file"
    except OSError as error:
        data, problem = b"", error.strerror or str(error)
    if problem:
        hint = "check the file and its permissions, or name another one with --config or $TOOLWIRE_CONFIG"
        raise ConfigError([Problem(location=str(path), message=f"cannot be read: {problem}", hint=hint)])
    return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # Windows does not have it


def decode_file(data: bytes, path: Path) -> str:
    """The text of a configuration file, with the line ends that TOML has; raises ConfigError."""
    if len(data) > MAX_FILE_BYTES:
        what = f"the file has more than {MAX_FILE_BYTES:,} bytes"
        raise ConfigError([Problem(location=str(path), message=what)], str(path))
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise ConfigError(
            [Problem(location=str(path), message="the file is not valid UTF-8", line=line)], str(path)
        ) from None


def _toml_problem(error: str, text: str) -> Problem:
    parts = _TOML_ERROR.match(error)
    message = parts[1] if parts else error
    line = int(parts[2]) if parts and parts[2] else text.rstrip().count("\n") + 1
    column = f" at column {parts[3]}" if parts and parts[3] else ""
    is_duplicate = message.startswith(_DUPLICATE_ERRORS)
    hint = "the same key or table is defined twice" if is_duplicate else "strings need quotes, tables need brackets"
    message = f"invalid TOML{column}: {message[:1].lower()}{message[1:]}"
    return Problem(location="toml", message=message, hint=hint, line=line)


# --- sections -----------------------------------------------------------------------------------------------------


def _find_sections(tables: TomlTable, collector: ProblemCollector) -> dict[str, TomlTable]:
    """The gateway's own sections that are one table each."""
    known = (*OWN_TABLES, "policy", *(name for section in SECTIONS for name in section.table_names()))
    for name in tables:
        if name not in known:
            collector.at(name).add(f"unknown section `{name}`", suggest_name(name, known))
    return {name: collector.at(name).expect_table(tables.get(name, {})) for name in OWN_TABLES}


def _read_sections(
    tables: TomlTable,
    environ: Mapping[str, str],
    server_overrides: Mapping[str, object],
    routes: Mapping[str, str],
    collector: ProblemCollector,
    path: Path | None,
) -> Config:
    sections = _find_sections(tables, collector)
    server = _read_server(sections["server"], server_overrides, collector.at("server"))
    translate = collector.at("translate").read_fields(sections["translate"], TranslateSettings)
    folder = path.parent if path is not None else Path()
    builder = ProviderBuilder(server, environ, collector, folder)
    builder.add_from_file(sections["providers"])
    facts = read_facts(sections["models"], collector)
    prices = read_prices(sections["models"], collector)
    rules = model_rules.read_model_rules(sections["models"], collector)
    rules = [rule for rule in rules if model_rules.check_rule(rule, builder, collector.at("models", rule.name), server)]
    for model in routes.values():
        if "/" in model:
            builder.ensure_provider(model.partition("/")[0], collector.at(model_rules.ROUTE_OPTION))
    _add_describing_providers(builder, collector)
    builder.add_from_environment()
    providers = dict(builder.providers)
    if server.loopback:
        providers |= embedded_providers(builder.providers)
    store = read_store(sections["store"], environ, collector.at("store"))
    policy = tables.get("policy", [])
    names, clients = list_provider_names(providers), client_keys.read_client_names(server)
    place = collector.at("server", "secret_env")
    check_variable("secret", server.secret_env, environ, place, "another key would sign")
    config = Config(
        server=server,
        providers=add_prices(providers, prices, rules),
        models=tuple(rules),
        facts=facts,
        translate=TranslateSettings(**translate or {}),
        store=store,
        # Presets are read only if there are rules, because they take a while.
        policy=read_policies(policy, collector, names, preset_rules(), clients) if policy != [] else (),
        file=path,
        has_key_list="keys" in sections["server"],
    )
    config = _read_features(SectionInput(tables, environ, collector, folder, config))
    _check_exposure(config, collector)
    client_keys.check_secrets(config, environ, collector)
    client_keys.check_rights(config, environ, collector.at("server"))
    if all(rule.provider in providers for rule in rules):
        model_rules.check_fallbacks(config, collector)
        model_rules.check_image_models(config, collector)
        return model_rules.add_routes(config, routes, collector)
    return config


def _read_features(source: SectionInput) -> Config:
    """The configuration with the sections of features, which are checked when all are read."""
    sections = {section: section.read(source) for section in SECTIONS}
    config = replace(source.config, sections=sections)
    for section in sections.values():
        section.check(replace(source, config=config))
    return config


def _read_server(table: TomlTable, overrides: Mapping[str, object], place: ProblemCollector) -> ServerSettings:
    given = place.read_fields({**table, **overrides}, ServerSettings, ("timeouts", "keys")) or {}
    times = place.at("timeouts").read_fields(table.get("timeouts", {}), Timeouts) or {}
    keys = client_keys.read_client_keys(_join_keys(table.get("keys", []), overrides.get("keys", ())), place.at("keys"))
    server = ServerSettings(**given, timeouts=Timeouts(**times), keys=keys)
    if not is_loopback(server.host) and not table.get("keys") and not server.store_keys:
        hint = f"make client keys (`{client_keys.NEW_KEY_COMMAND}`), or listen on 127.0.0.1"
        place.at("host").add(f"listening on {server.host} without keys would let anyone use the gateway", hint)
    if server.workers > 1 and not hasattr(os, "fork"):
        what = "this system cannot run several workers: Windows cannot fork a process"
        place.at("workers").add(what, "write 1, or run several gateways on several ports")
    _check_metrics(server, place)
    return server


def _join_keys(tables: object, added: object) -> object:
    """The keys of the file, and those that a parent process has made for itself."""
    return [*tables, *added] if isinstance(tables, list) and isinstance(added, Sequence) else tables


def _add_describing_providers(builder: ProviderBuilder, collector: ProblemCollector) -> None:
    """The providers of the models that describe images for those of other providers."""
    for name, provider in [*builder.providers.items()]:
        used, slash, _ = (provider.calls.describe_images or "").partition("/")
        if slash:
            builder.ensure_provider(used, collector.at("providers", name, "describe_images"))


def _check_metrics(server: ServerSettings, place: ProblemCollector) -> None:
    digest = server.metrics_sha256.lower()
    client_hint = "write `metrics = true` in its [[server.keys]], or create another one"
    client_keys.check_separate_key(digest, server, place.at("metrics_sha256"), client_hint)
    if server.metrics_listen:
        address = parse_listen_address(server.metrics_listen)
        if address is None:
            hint = 'write HOST:PORT, such as "127.0.0.1:9100" or "[::1]:9100"'
            place.at("metrics_listen").add("not an address", hint)
        elif not is_loopback(address[0]) and not digest:
            what = "everybody who can reach this address can read the metrics"
            place.at("metrics_listen").add(what, "add `metrics_sha256`, or listen on 127.0.0.1", "warning")


def parse_listen_address(text: str) -> tuple[str, int] | None:
    """The host and the port of `HOST:PORT`; None if it is not that."""
    host, _, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not host or not port.isascii() or not port.isdecimal() or int(port[:6]) > 65535:
        return None
    return (host[1:-1], int(port)) if is_bracketed else None if ":" in host else (host, int(port))


def _check_exposure(config: Config, collector: ProblemCollector) -> None:
    """Warn of settings that could give something away: keys in plain text on a network, names without keys."""
    server = config.server
    if server.allowed_hosts and not server.needs_keys:
        what = "other names for the gateway, but no client keys"
        hint = "a proxy on this machine, or a web page under such a name, could use the gateway: add [[server.keys]]"
        collector.at("server", "allowed_hosts").add(what, hint, "warning")
    hashes = {key.sha256: number for number, key in enumerate(server.keys)}
    for provider in config.providers.values():
        place = collector.at("providers", provider.name)
        for url in {url for url in provider.base_urls.values() if provider.api_key or provider.forward_auth}:
            if is_exposed(url):
                place.at("base_url").add(*PLAIN_HTTP, "warning")
        for account in provider.each_account:
            number = hashes.get(client_keys.hash_key(account.api_key.reveal()))
            if account.api_key and number is not None:
                what = f"this is the key of the provider `{account.label}`"
                hint = "clients must not have the provider's key: create another one"
                collector.at("server", "keys", number, "sha256").add(what, hint)
