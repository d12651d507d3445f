"""Finds `toolwire.toml`, reads it, and reports all its problems at once, each with its line."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from toolwire.core.ir import EMPTY_MAPPING
from toolwire.gateway.config.client_keys import (
    NEW_KEY_COMMAND,
    check_rights,
    check_secrets,
    guessable_hashes,
    hash_key,
    is_hash,
    read_client_keys,
    read_client_names,
)
from toolwire.gateway.config.config import (
    Config,
    ConsoleSettings,
    CostSettings,
    ModelRule,
    ServerSettings,
    Timeouts,
    TranslateSettings,
)
from toolwire.gateway.config.limits import check_counters, limits_of_keys, read_counters, read_limits
from toolwire.gateway.config.mcp_servers import read_mcp_servers
from toolwire.gateway.config.model_facts import add_prices, read_facts, read_prices
from toolwire.gateway.config.policies import preset_rules, read_policies
from toolwire.gateway.config.problems import (
    ConfigError,
    KeyPath,
    Problem,
    ProblemCollector,
    ReportLine,
    TomlLines,
    TomlTable,
    report_problems,
    suggest_name,
)
from toolwire.gateway.config.providers import (
    ProviderBuilder,
    check_tool_format,
    embedded_providers,
    known_servers,
)
from toolwire.gateway.config.store import check_secret, read_store
from toolwire.gateway.pipeline.route import Router
from toolwire.gateway.upstream.address import is_loopback, is_private
from toolwire.protocols import CODECS

CONFIG_FILE_NAME = "toolwire.toml"
ROUTE_OPTION = "--route"
MAX_PROBLEMS = 200
"""After these, fallbacks are not checked any more."""
MAX_FILE_BYTES = 16 * 1024 * 1024
"""A file of 50,000 client keys has half of that."""
MAX_FALLBACK_CHAIN = 50
"""Rules whose fallbacks lead from one to the next. Requests follow the whole chain."""
SECTIONS = (
    "server",
    "providers",
    "models",
    "translate",
    "store",
    "costs",
    "limits",
    "counters",
    "console",
    "policy",
    "mcp",
)
LIST_SECTIONS = ("policy", "limits")
RENAMED_KEYS: Mapping[KeyPath, str] = {
    ("server", "deadlines"): "timeouts",
    ("server", "timeouts", "retries"): "all_attempts",
    ("server", "hosts"): "allowed_hosts",
    ("server", "log"): "log_format",
    ("server", "on_client_gone"): "on_disconnect",
    ("server", "rest"): "cooldown",
    ("server", "rest_after"): "cooldown_after",
    ("store", "lease"): "background_lease",
    ("mcp", "*", "parallel"): "max_parallel",
    ("mcp", "*", "rounds"): "max_rounds",
    ("mcp", "*", "shows"): "call_visibility",
}
"""Old keys that are still accepted with a warning, by their place (`*` is any name), and what they are called now."""
_PLAIN_HTTP = ("the key is sent over plain HTTP: everybody on the way can read it", "use an address with https://")
_TOML_ERROR = re.compile(r"^(.*) \(at (?:line (\d+), column (\d+)|end of document)\)$", re.DOTALL)
_DUPLICATE_ERRORS = ("Cannot overwrite a value", "Cannot declare", "Cannot mutate", "Cannot add")
"""How the messages of `tomllib` about duplicates begin."""


def load_config(
    file: str | Path | None,
    environ: Mapping[str, str],
    server_overrides: Mapping[str, object] = EMPTY_MAPPING,
    routes: Mapping[str, str] = EMPTY_MAPPING,
) -> Config:
    """Read the configuration from a file (None: the default one) and the environment; raises ConfigError.

    `server_overrides` (fields of `[server]`) and `routes` (models by the name that clients use) are from the command
    line and win over the file.
    """
    path = Path(file) if file else find_config_file(environ)
    return _read_config(_read_file(path) if path is not None else "", path, environ, server_overrides, routes)


def find_problems(text: str, environ: Mapping[str, str], path: Path | None = None) -> tuple[Problem, ...]:
    """The errors and warnings of a configuration that is not in a file yet; `path` is where it will be."""
    try:
        return _read_config(text, path, environ, EMPTY_MAPPING, EMPTY_MAPPING).warnings
    except ConfigError as error:
        return error.problems


def _read_config(
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
        collector.rename_old_keys(tables, RENAMED_KEYS)
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


def find_config_file(environ: Mapping[str, str]) -> Path | None:
    """The file to use if the command line names none."""
    if environ.get("TOOLWIRE_CONFIG"):
        return Path(environ["TOOLWIRE_CONFIG"])
    return next((place for place in config_file_places(environ) if place.is_file()), None)


def config_file_places(environ: Mapping[str, str]) -> list[Path]:
    """Where the file is looked for."""
    places = [Path(CONFIG_FILE_NAME)]
    if environ.get("XDG_CONFIG_HOME"):
        places.append(Path(environ["XDG_CONFIG_HOME"], "toolwire", CONFIG_FILE_NAME))
    elif environ.get("HOME"):
        places.append(Path(environ["HOME"], ".config", "toolwire", CONFIG_FILE_NAME))
    return places


def _read_file(path: Path) -> str:
    return decode_file(read_file_bytes(path), path)


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
        hint = "see --config and $TOOLWIRE_CONFIG"
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
    """The sections that are one table each."""
    for name in tables:
        if name not in SECTIONS:
            collector.at(name).add(f"unknown section `{name}`", suggest_name(name, SECTIONS))
    named = [name for name in SECTIONS if name not in LIST_SECTIONS]
    return {name: collector.at(name).expect_table(tables.get(name, {})) for name in named}


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
    rules = _read_model_rules(sections["models"], collector)
    rules = [rule for rule in rules if _check_rule(rule, builder, collector.at("models", rule.name), server)]
    for model in routes.values():
        if "/" in model:
            builder.ensure_provider(model.partition("/")[0], collector.at(ROUTE_OPTION))
    _add_describing_providers(builder, collector)
    builder.add_from_environment()
    providers = dict(builder.providers)
    if server.loopback:
        providers |= embedded_providers(builder.providers)
    store = read_store(sections["store"], environ, collector.at("store"))
    policy = tables.get("policy", [])
    clients = read_client_names(server)
    check_secret(server, environ, collector.at("server", "secret_env"))
    config = Config(
        server=server,
        providers=add_prices(providers, prices, rules),
        models=tuple(rules),
        facts=facts,
        translate=TranslateSettings(**translate or {}),
        store=store,
        costs=_read_costs(sections["costs"], collector.at("costs")),
        limits=read_limits(tables.get("limits", []), collector.at("limits"), (*builder.names, *providers), clients)
        + limits_of_keys(server.keys),
        counters=read_counters(sections["counters"], environ, collector.at("counters")),
        console=_read_console(sections["console"], server, collector.at("console")),
        # Presets are read only if there are rules, because they take a while.
        policy=read_policies(policy, collector, (*builder.names, *providers), preset_rules(), clients)
        if policy != []
        else (),
        mcp=read_mcp_servers(sections["mcp"], environ, collector, folder, clients),
        file=path,
        has_key_list="keys" in sections["server"],
    )
    check_counters(config, environ, collector)
    _check_substitutes(config, collector)
    _check_exposure(config, collector)
    check_secrets(config, environ, collector)
    check_rights(config, environ, collector.at("server"))
    if all(rule.provider in providers for rule in rules):
        _check_fallbacks(config, collector)
        _check_image_models(config, collector)
        return _add_routes(config, routes, collector)
    return config


def _check_substitutes(config: Config, collector: ProblemCollector) -> None:
    """Check `web_search` and `web_fetch`, and warn of MCP servers that no client can use."""
    for name, value in (("web_search", config.translate.web_search), ("web_fetch", config.translate.web_fetch)):
        place = collector.at("translate", name)
        server, _, tool = value.removeprefix("mcp:").partition("/")
        if value and not (value.startswith("mcp:") and server and tool):
            place.add(f"`{value}` is not a tool of an MCP server", 'write "mcp:SERVER/TOOL"')
        elif value and server not in config.mcp:
            place.add(f"unknown MCP server `{server}`", suggest_name(server, config.mcp) or f"add [mcp.{server}]")
    used = {server for server, _ in config.translate.substitutes.values()}
    for name, settings in config.mcp.items():
        if not settings.has_audience and name not in used:
            hint = 'models = ["*"] gives its tools to all models, keys = ["NAME"] to clients with this key'
            collector.at("mcp", name).add("no client gets these tools", hint, "warning")


def _read_server(table: TomlTable, overrides: Mapping[str, object], place: ProblemCollector) -> ServerSettings:
    given = place.read_fields({**table, **overrides}, ServerSettings, ("timeouts", "keys")) or {}
    times = place.at("timeouts").read_fields(table.get("timeouts", {}), Timeouts) or {}
    keys = read_client_keys(_join_keys(table.get("keys", []), overrides.get("keys", ())), place.at("keys"))
    server = ServerSettings(**given, timeouts=Timeouts(**times), keys=keys)
    if not is_loopback(server.host) and not table.get("keys") and not server.store_keys:
        hint = f"make client keys (`{NEW_KEY_COMMAND}`), or listen on 127.0.0.1"
        place.at("host").add(f"listening on {server.host} without keys would let anyone use the gateway", hint)
    if server.workers > 1 and not hasattr(os, "fork"):
        what = "this system cannot run several workers: Windows cannot fork a process"
        place.at("workers").add(what, "write 1, or run several gateways on several ports")
    _check_metrics(server, place)
    return server


def _join_keys(tables: object, added: object) -> object:
    """The keys of the file, and those that a parent process has made for itself."""
    return [*tables, *added] if isinstance(tables, list) and isinstance(added, Sequence) else tables


def _check_separate_key(digest: str, server: ServerSettings, place: ProblemCollector, client_hint: str) -> None:
    """Check the hash of a key that must not be the key of a client."""
    if digest and not is_hash(digest):
        hint = "create it with `toolwire check-config --hash-key`"
        place.add("not a SHA-256 hash: it must have 64 hexadecimal digits", hint)
    elif digest in guessable_hashes():
        place.add("the hash of an empty key, or of one that everybody would try first")
    elif digest and any(key.sha256 == digest for key in server.keys):
        place.add("this is the key of a client, too", client_hint)


def _add_describing_providers(builder: ProviderBuilder, collector: ProblemCollector) -> None:
    """The providers of the models that describe images for those of other providers."""
    for name, provider in [*builder.providers.items()]:
        used, slash, _ = (provider.calls.describe_images or "").partition("/")
        if slash:
            builder.ensure_provider(used, collector.at("providers", name, "describe_images"))


def _read_costs(table: TomlTable, place: ProblemCollector) -> CostSettings:
    return CostSettings(**place.read_fields(table, CostSettings) or {})


def _read_console(table: TomlTable, server: ServerSettings, place: ProblemCollector) -> ConsoleSettings:
    console = ConsoleSettings(**place.read_fields(table, ConsoleSettings) or {})
    client_hint = "create another one: this key shows what all clients send and get"
    _check_separate_key(console.sha256.lower(), server, place.at("sha256"), client_hint)
    if table.get("enabled") is True and not console.sha256 and (server.needs_keys or not is_loopback(server.host)):
        what = "with client keys, or for other machines, the console needs a key of its own"
        place.at("enabled").add(what, "add `sha256` (`toolwire check-config --hash-key`)")
    return console


def _check_metrics(server: ServerSettings, place: ProblemCollector) -> None:
    digest = server.metrics_sha256.lower()
    client_hint = "write `metrics = true` in its [[server.keys]], or create another one"
    _check_separate_key(digest, server, place.at("metrics_sha256"), client_hint)
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
            if _is_exposed(url):
                place.at("base_url").add(*_PLAIN_HTTP, "warning")
        for account in provider.each_account:
            number = hashes.get(hash_key(account.api_key.reveal()))
            if account.api_key and number is not None:
                what = f"this is the key of the provider `{account.label}`"
                hint = "clients must not have the provider's key: create another one"
                collector.at("server", "keys", number, "sha256").add(what, hint)
    for name, mcp_server in config.mcp.items():
        if mcp_server.headers and _is_exposed(mcp_server.url.reveal()):
            collector.at("mcp", name, "url").add(*_PLAIN_HTTP, "warning")


def _is_exposed(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and not is_loopback(parts.hostname or "") and not is_private(parts.hostname or "")
    except ValueError:
        return False  # has its own error


# --- models -------------------------------------------------------------------------------------------------------


def _read_model_rules(tables: TomlTable, collector: ProblemCollector) -> list[ModelRule]:
    rules: list[ModelRule] = []
    for name, table in tables.items():
        place = collector.at("models", name)
        if isinstance(table, str):  # the short form: name = "provider/model"
            provider, _, model = table.partition("/")
            rules.append(ModelRule(name=name, provider=provider, model=model))
            continue
        if not isinstance(table, dict):
            place.add(f'`{name}` must be a table or "provider/model"')
            continue
        if table.keys() == {"facts"}:  # says something about the model, and leaves its provider as it is
            continue
        given = place.read_fields(table, ModelRule, ("name", "facts"))
        if "name" in table:
            place.at("name").add("unknown key `name`", "the name is in the brackets: [models.NAME]")
        if given is not None:
            model = "" if given.get("model") == "*" else given.get("model", "")
            protocol = given.get("protocol", "").replace("_", "-")
            rules.append(ModelRule(**{**given, "name": name, "model": model, "protocol": protocol}))
    return rules


def _check_rule(rule: ModelRule, providers: ProviderBuilder, place: ProblemCollector, server: ServerSettings) -> bool:
    """Check the provider and the protocol of a rule; create the known servers that it uses."""
    for key, used in (*(("fallbacks", name) for name in rule.fallbacks), ("describe_images", rule.describe_images)):
        name, slash, _ = (used or "").partition("/")
        if slash:
            providers.ensure_provider(name, place.at(key))
    embedded = embedded_providers(()) if server.loopback else {}
    if rule.provider not in embedded and not providers.ensure_provider(rule.provider, place.at("provider")):
        hint = suggest_name(rule.provider, [*providers.names, *embedded])
        place.at("provider").add(f"unknown provider `{rule.provider}`", hint)
        return False
    provider = providers.providers.get(rule.provider) or embedded.get(rule.provider)
    protocols = provider.protocols if provider is not None else tuple(CODECS)
    if rule.tool_format is not None:
        check_tool_format(rule.tool_format, place.at("tool_format"))
    if rule.protocol and rule.protocol not in protocols:
        wrong = f"`{rule.provider}` does not speak `{rule.protocol}`"
        place.at("protocol").add(wrong, f"it speaks: {', '.join(protocols)}")
    return True


def _add_routes(config: Config, routes: Mapping[str, str], collector: ProblemCollector) -> Config:
    """Add the routes of the command line. Each is resolved with the file's rules alone, so none can be circular; they
    win over rules of the same name."""
    router = Router(config)
    rules = {rule.name: rule for rule in config.models}
    for name, model in routes.items():
        found = router.resolve_name(model, is_fallback=True)
        if isinstance(found, ModelRule):
            rules[name] = replace(found, name=name, model=found.model or model)
        elif found is not None:
            rules[name] = ModelRule(name=name, provider=found.provider.name, model=found.model)
        else:
            first, slash, _ = model.partition("/")
            if slash:
                wrong, hint = (
                    f"unknown provider `{first}`",
                    suggest_name(first, {**config.providers, **known_servers()}),
                )
            else:
                served = [known for provider in config.providers.values() for known in provider.models]
                wrong, hint = f"no provider serves the model `{model}`", suggest_name(model, [*rules, *served])
            collector.at(ROUTE_OPTION).add(wrong if name == model else f"`{name}={model}`: {wrong}", hint)
    return replace(config, models=tuple(rules.values()))


def _check_fallbacks(config: Config, collector: ProblemCollector) -> None:
    """Check that every fallback exists, that none leads back to its own rule, and that chains of them are short."""
    router = Router(config)
    onward = {
        rule.name: [
            found.name
            for fallback in rule.fallbacks
            if isinstance(found := router.resolve_name(fallback, is_fallback=True), ModelRule)
        ]
        for rule in config.models
    }
    chains = _chain_lengths(onward)
    for rule in config.models:
        if chains.get(rule.name, 0) > MAX_FALLBACK_CHAIN:
            wrong = f"more than {MAX_FALLBACK_CHAIN} fallbacks follow one another"
            collector.at("models", rule.name, "fallbacks").add(wrong, "list the fallbacks in one rule instead")
            break
    for rule in config.models:
        if len(collector.problems) > MAX_PROBLEMS:  # each takes a search for a similar name
            break
        for number, fallback in enumerate(rule.fallbacks):
            place = collector.at("models", rule.name, "fallbacks", number)
            found = router.resolve_name(fallback, is_fallback=True)
            if found is None:
                name, slash, _ = fallback.partition("/")
                names = [other.name for other in config.models if other is not rule]
                if slash:
                    place.add(f"unknown provider `{name}`", suggest_name(name, config.providers))
                else:
                    place.add(f"the fallback `{fallback}` does not exist", suggest_name(fallback, names))
            elif (
                isinstance(found, ModelRule) and rule.name not in chains and _leads_back(onward, found.name, rule.name)
            ):
                wrong = f"the fallback `{fallback}` leads back to `{rule.name}`"
                place.add(wrong, "a chain of fallbacks must end; `provider/model` skips [models]")


def _check_image_models(config: Config, collector: ProblemCollector) -> None:
    """Check that the models exist that describe images."""
    router = Router(config)
    places = [
        *((collector.at("providers", name), provider.calls) for name, provider in config.providers.items()),
        *((collector.at("models", rule.name), rule) for rule in config.models),
    ]
    for place, settings in places:
        model = settings.describe_images
        if model is not None and model != "off" and router.find_target(model) is None:
            name = model.partition("/")[0]
            wrong = f"no provider serves the model `{model}`, which should describe images"
            place.at("describe_images").add(wrong, suggest_name(name, config.providers) or 'write "PROVIDER/MODEL"')


def _chain_lengths(onward: Mapping[str, Sequence[str]]) -> Mapping[str, int]:
    """How many rules follow each rule; without the rules from which a circle can be reached. From the ends of the
    chains back to their starts, so that each rule is visited once."""
    open_ends = {name: len(followers) for name, followers in onward.items()}
    before: dict[str, list[str]] = {}
    for name, followers in onward.items():
        for follower in followers:
            before.setdefault(follower, []).append(name)
    lengths = {name: 0 for name, count in open_ends.items() if not count}
    ready = [*lengths]
    while ready:
        name = ready.pop()
        for earlier in before.get(name, ()):
            lengths[earlier] = max(lengths.get(earlier, 0), lengths[name] + 1)
            open_ends[earlier] -= 1
            if not open_ends[earlier]:
                ready.append(earlier)
    return {name: length for name, length in lengths.items() if not open_ends[name]}


def _leads_back(onward: Mapping[str, Sequence[str]], first: str, start: str) -> bool:
    waiting, seen = [first], {first}
    while waiting and start not in seen:
        followers = [name for name in onward.get(waiting.pop(), ()) if name not in seen]
        seen.update(followers)
        waiting += followers
    return start in seen


# --- the current configuration ------------------------------------------------------------------------------------

FileStamp = tuple[int, int, int] | None
"""Changes whenever the file changes; None without a file."""
_TABLE_OR_END = re.compile(r"(?:[ \t\r\n]|#[^\n]*(?:\n|\Z))*(?:\[|\Z)")
"""A text that begins with a table, after blank lines and comments."""


class AcceptedFile(Struct, frozen=True):
    """A configuration file that is in force, as it was read. A worker that is replaced leaves it to the next one."""

    file: str
    stamp: FileStamp
    text: str

    def __repr__(self) -> str:  # the text may contain keys
        return f"AcceptedFile({self.file!r})"


class Reload(Struct, frozen=True):
    """A changed file, as a new configuration or with the reasons why it is refused."""

    stamp: FileStamp
    text: str = ""
    config: Config | None = None
    problems: tuple[Problem, ...] = ()

    def __repr__(self) -> str:
        return f"Reload({'accepted' if self.config is not None else 'refused'})"


class LiveConfig:
    """The current configuration. The server calls `reload_if_changed` from time to time; or `read_if_changed`, which a
    thread can run because it changes nothing, and then `apply`."""

    def __init__(
        self,
        file: str | Path | None,
        environ: Mapping[str, str],
        report: Callable[[Sequence[ReportLine]], None],
        server: Mapping[str, object] = EMPTY_MAPPING,
        routes: Mapping[str, str] = EMPTY_MAPPING,
        accepted: AcceptedFile | None = None,
    ) -> None:
        """Raises ConfigError. `server` and `routes` are from the command line. `accepted` was in force in the process
        that this one replaces: it stays in force if the file has become unusable since."""
        self._environ, self._report, self._overrides = environ, report, (server, routes)
        self._path = Path(accepted.file) if accepted else Path(file) if file else find_config_file(environ)
        self._stamp = self._accepted_stamp = accepted.stamp if accepted is not None else self.file_stamp()
        self._text = accepted.text if accepted else _read_file(self._path) if self._path is not None else ""
        self.current: Config = _read_config(self._text, self._path, environ, server, routes)
        self._report_problems(self.current.warnings)
        if accepted is not None:
            self.reload_if_changed()

    @property
    def accepted_file(self) -> AcceptedFile | None:
        """What is in force; None without a file."""
        return AcceptedFile(str(self._path), self._accepted_stamp, self._text) if self._path is not None else None

    def file_stamp(self) -> FileStamp:
        """Changes whenever the file changes; None without a file."""
        try:
            found = self._path.stat() if self._path is not None else None
        except OSError:
            return None
        return (found.st_mtime_ns, found.st_size, found.st_ino) if found is not None else None

    def reload_if_changed(self, force: bool = False) -> bool:
        """Read the file again if it has changed; True if there is a new configuration."""
        reload = self.read_if_changed(force)
        return reload is not None and self.apply(reload)

    def read_if_changed(self, force: bool = False) -> Reload | None:
        stamp = self.file_stamp()
        if self._path is None or (stamp == self._stamp and not force):
            return None
        try:
            text = _read_file(self._path)
            config = _read_config(text, self._path, self._environ, *self._overrides)
        except ConfigError as error:
            return Reload(stamp, problems=error.problems)
        problem = self._find_danger(text, config)
        return Reload(stamp, text, config) if problem is None else Reload(stamp, problems=(problem,))

    def apply(self, reload: Reload) -> bool:
        """Use the new configuration; a refused file leaves the old one in force."""
        self._stamp = reload.stamp
        if reload.config is None:
            self._report_problems(reload.problems)
            return False
        self.current, self._text, self._accepted_stamp = reload.config, reload.text, reload.stamp
        self._report_problems(self.current.warnings)
        return True

    def _report_problems(self, problems: Sequence[Problem]) -> None:
        if problems:
            self._report(report_problems(problems, str(self._path or "")))

    def _find_danger(self, text: str, fresh: Config) -> Problem | None:
        """Why a valid file must not replace the current one: it seems to be damaged, or it would let everybody in. That
        takes a restart, or words that nobody writes by accident."""
        what = hint = ""
        if not self.current.server.needs_keys:
            return None
        if not text.strip():
            what, hint = "the file is empty", "restore it"
        elif not fresh.server.needs_keys and not (fresh.has_key_list and is_loopback(self.current.server.host)):
            what = "all client keys are gone"
            hint = (
                "restore [[server.keys]] or store_keys."
                " To serve without keys, write `keys = []` in [server] with a local host"
            )
        elif self._text.startswith(text) and not _TABLE_OR_END.match(self._text, len(text)):
            what = "the file has been cut off in the middle of a table"
            hint = "restore it; if this is what you want, add a comment at its end"
        return Problem(location=str(self._path), message=what, hint=hint) if what else None
