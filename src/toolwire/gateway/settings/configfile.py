"""`toolwire.toml`: found, read, and checked as a whole, so that every mistake is told at once with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Mapping
from pathlib import Path

from msgspec.structs import replace

from toolwire.gateway.settings import policies
from toolwire.gateway.settings.addresses import is_loopback
from toolwire.gateway.settings.catalogue import presets
from toolwire.gateway.settings.config import ClientKey, Config, Deadlines, ModelRule, Server, Translate
from toolwire.gateway.settings.mcps import mcp_servers
from toolwire.gateway.settings.places import store
from toolwire.gateway.settings.problems import Problem, Problems, meant
from toolwire.gateway.settings.providers import LOOPBACK, Gathered, loopback, rows
from toolwire.gateway.settings.routing import Router
from toolwire.gateway.settings.tables import Findings, Table
from toolwire.gateway.settings.toml_lines import Lines, Place
from toolwire.ir import NOTHING
from toolwire.policy.rules import Rule
from toolwire.protocols import ROOMS

NAME = "toolwire.toml"
ROUTE = "--route"
SECTIONS = ("server", "providers", "models", "translate", "store", "policy", "mcp")
_HASH = re.compile(r"[0-9a-fA-F]{64}")
_AT = re.compile(r"^(.*) \(at (?:line (\d+), column \d+|end of document)\)$", re.DOTALL)
_TWICE = ("Cannot overwrite a value", "Cannot declare", "Cannot mutate", "Cannot add")
"""How the standard reader begins to say that something stands twice."""


def load(
    file: str | Path | None,
    environ: Mapping[str, str],
    server: Mapping[str, object] = NOTHING,
    routes: Mapping[str, str] = NOTHING,
) -> Config:
    """The configuration out of a file (found as documented when None) and the environment; raises `Problems`. `server`
    holds fields of `[server]`, and `routes` models by the names they are asked for under, that the command line sets
    over the file."""
    path = Path(file) if file else found(environ)
    text = _text(path) if path is not None else ""
    name = str(path) if path is not None else ""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Problems([_syntax(str(error), text)], name) from None
    findings = Findings(Lines(text) if path is not None else None)
    config = _read(tables, environ, server, routes, findings, path)
    if findings.refused:
        raise Problems(findings.all, name)
    return replace(config, warnings=tuple(findings.all))


def found(environ: Mapping[str, str]) -> Path | None:
    """The file that is used when none is named on the command line."""
    if environ.get("TOOLWIRE_CONFIG"):
        return Path(environ["TOOLWIRE_CONFIG"])
    places = [Path(NAME)]
    if environ.get("XDG_CONFIG_HOME"):
        places.append(Path(environ["XDG_CONFIG_HOME"], "toolwire", NAME))
    elif environ.get("HOME"):
        places.append(Path(environ["HOME"], ".config", "toolwire", NAME))
    return next((place for place in places if place.is_file()), None)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        hint = "see --config and $TOOLWIRE_CONFIG"
        raise Problems([Problem(where=str(path), what=f"cannot be read: {error.strerror}", hint=hint)]) from None
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise Problems([Problem(where=str(path), what="not UTF-8", line=line)], str(path)) from None


def _syntax(error: str, text: str) -> Problem:
    parts = _AT.match(error)
    said = parts[1] if parts else error
    line = int(parts[2]) if parts and parts[2] else text.rstrip().count("\n") + 1
    twice = said.startswith(_TWICE)
    hint = "the same key or table stands twice" if twice else "text needs quotes, tables need brackets"
    return Problem(where="toml", what=f"no valid TOML: {said[:1].lower()}{said[1:]}", hint=hint, line=line)


# --- sections -----------------------------------------------------------------------------------------------------


def _read(
    tables: Table,
    environ: Mapping[str, str],
    over: Mapping[str, object],
    routes: Mapping[str, str],
    findings: Findings,
    path: Path | None,
) -> Config:
    for name in tables:
        if name not in SECTIONS:
            findings.add((name,), f"unknown section `{name}`", meant(name, SECTIONS))
    server = _server(findings.table(tables.get("server", {}), ("server",)), over, findings)
    translate = findings.shaped(findings.table(tables.get("translate", {}), ("translate",)), Translate, ("translate",))
    folder = path.parent if path is not None else Path()
    gathered = Gathered(server, environ, findings, folder)
    gathered.from_file(findings.table(tables.get("providers", {}), ("providers",)))
    rules = _rules(findings.table(tables.get("models", {}), ("models",)), findings)
    rules = [rule for rule in rules if _placed(rule, gathered, findings, server)]
    for model in routes.values():
        if "/" in model:
            gathered.named(model.partition("/")[0], (ROUTE,))
    gathered.from_environment()
    providers = dict(gathered.found)
    if server.loopback:
        providers[LOOPBACK] = loopback()
    config = Config(
        server=server,
        providers=providers,
        models=tuple(rules),
        translate=Translate(**translate or {}),
        store=store(findings.table(tables.get("store", {}), ("store",)), environ, findings),
        policy=_policy(tables["policy"], findings, (*gathered.names, *providers)) if "policy" in tables else (),
        mcp=mcp_servers(findings.table(tables.get("mcp", {}), ("mcp",)), environ, findings, folder),
        file=path,
    )
    _stand_in(config, findings)
    if all(rule.provider in providers for rule in rules):
        _follow(config, findings)
        return _routed(config, routes, findings)
    return config


def _stand_in(config: Config, findings: Findings) -> None:
    """Is there a server for each tool that is to stand in for a provider's own?"""
    for name in ("web_search", "web_fetch"):
        value: str = getattr(config.translate, name)
        place: Place = ("translate", name)
        server, _, tool = value.removeprefix("mcp:").partition("/")
        if value and not (value.startswith("mcp:") and server and tool):
            findings.add(place, f"`{value}` names no tool of an MCP server", 'write "mcp:SERVER/TOOL"')
        elif value and server not in config.mcp:
            hint = meant(server, config.mcp) or f"add [mcp.{server}]"
            findings.add(place, f"no MCP server is called `{server}`", hint)
    standing = {server for server, _ in config.translate.substitutes.values()}
    for name, settings in config.mcp.items():
        if not settings.models and not settings.clients and name not in standing:
            hint = 'models = ["*"] gives its tools to all models'
            findings.add(("mcp", name), "nobody is given these tools", hint, "warning")


def _policy(value: object, findings: Findings, providers: Collection[str]) -> tuple[Rule, ...]:
    return policies.read(value, findings, providers, presets())  # read only where there are rules: they take a while


def _server(table: Table, over: Mapping[str, object], findings: Findings) -> Server:
    place: Place = ("server",)
    given = findings.shaped({**table, **over}, Server, place, ("deadlines", "keys")) or {}
    deadlines = (*place, "deadlines")
    times = findings.shaped(findings.table(table.get("deadlines", {}), deadlines), Deadlines, deadlines) or {}
    server = Server(**given, deadlines=Deadlines(**times), keys=_keys(table.get("keys", []), findings))
    if not is_loopback(server.host) and "keys" not in table:
        hint = "add [[server.keys]] (`toolwire check-config --hash-key`), or listen on 127.0.0.1"
        findings.add((*place, "host"), f"listening on {server.host} without keys would serve anybody", hint)
    return server


def _keys(tables: object, findings: Findings) -> tuple[ClientKey, ...]:
    place: Place = ("server", "keys")
    if not isinstance(tables, list):
        findings.add(place, "`server.keys` is a list of tables", "write `[[server.keys]]`")
        return ()
    keys: dict[str, ClientKey] = {}
    hashes: set[str] = set()
    for at, table in enumerate(tables):
        where = (*place, at)
        given = findings.shaped(findings.table(table, where), ClientKey, where)
        if given is None:
            continue
        key = ClientKey(**{**given, "sha256": given["sha256"].lower()})
        if not _HASH.fullmatch(key.sha256):
            hint = "`toolwire check-config --hash-key` makes it from a key"
            findings.add((*where, "sha256"), "no SHA-256: it has 64 hexadecimal digits", hint)
        elif key.sha256 in hashes:
            findings.add((*where, "sha256"), "this key stands twice", "every client has a key of its own")
        if key.name in keys:
            findings.add((*where, "name"), f"two keys are called `{key.name}`", "names tell clients apart in the log")
        keys[key.name] = key
        hashes.add(key.sha256)
    return tuple(keys.values())


# --- models -------------------------------------------------------------------------------------------------------


def _rules(tables: Table, findings: Findings) -> list[ModelRule]:
    rules: list[ModelRule] = []
    for name, table in tables.items():
        place: Place = ("models", name)
        if isinstance(table, str):  # the short form: name = "provider/model"
            provider, _, model = table.partition("/")
            rules.append(ModelRule(name=name, provider=provider, model=model))
            continue
        if not isinstance(table, dict):
            findings.add(place, f'`{name}` is a table, or "provider/model"')
            continue
        given = findings.shaped(table, ModelRule, place, ("name",))
        if "name" in table:
            findings.add((*place, "name"), "unknown key `name`", "the name stands in the brackets")
        if given is not None:
            model = "" if given.get("model") == "*" else given.get("model", "")
            protocol = given.get("protocol", "").replace("_", "-")
            rules.append(ModelRule(**{**given, "name": name, "model": model, "protocol": protocol}))
    return rules


def _placed(rule: ModelRule, gathered: Gathered, findings: Findings, server: Server) -> bool:
    """Are the providers there that a rule names?"""
    place: Place = ("models", rule.name)
    there = _is_there(rule.provider, (*place, "provider"), gathered, findings, server)
    if there and rule.protocol:
        provider = gathered.found.get(rule.provider)
        spoken = provider.protocols if provider is not None else tuple(ROOMS)
        if rule.protocol not in spoken:
            wrong = f"`{rule.provider}` does not speak `{rule.protocol}`"
            findings.add((*place, "protocol"), wrong, f"it speaks: {', '.join(spoken)}")
    for fallback in rule.fallbacks:
        name, slash, _ = fallback.partition("/")
        if slash:
            gathered.named(name, (*place, "fallbacks"))
    return there


def _is_there(name: str, place: Place, gathered: Gathered, findings: Findings, server: Server) -> bool:
    embedded = [LOOPBACK] if server.loopback else []
    if name in embedded or gathered.named(name, place):
        return True
    findings.add(place, f"no provider is called `{name}`", meant(name, [*gathered.names, *embedded]))
    return False


def _routed(config: Config, routes: Mapping[str, str], findings: Findings) -> Config:
    """With the routes of the command line. Each leads where its model leads by the file, so that none goes in circles;
    a name that both have is the command line's."""
    router = Router(config)
    rules = {rule.name: rule for rule in config.models}
    for name, model in routes.items():
        found = router.step(model, fallback=True)
        if isinstance(found, ModelRule):
            rules[name] = replace(found, name=name, model=found.model or model)
        elif found is not None:
            rules[name] = ModelRule(name=name, provider=found.provider.name, model=found.model)
        else:
            first, slash, _ = model.partition("/")
            wrong = f"no provider is called `{first}`" if slash else f"nothing leads to the model `{model}`"
            served = [known for provider in config.providers.values() for known in provider.models]
            hint = meant(first, {**config.providers, **rows()}) if slash else meant(model, [*rules, *served])
            findings.add((ROUTE,), wrong if name == model else f"`{name}={model}`: {wrong}", hint)
    return replace(config, models=tuple(rules.values()))


def _follow(config: Config, findings: Findings) -> None:
    """Every fallback must lead somewhere, and none back to where it came from."""
    router = Router(config)
    for rule in config.models:
        for at, fallback in enumerate(rule.fallbacks):
            place: Place = ("models", rule.name, "fallbacks", at)
            found = router.step(fallback, fallback=True)
            if found is None:
                name, slash, _ = fallback.partition("/")
                names = [other.name for other in config.models if other is not rule]
                wrong = f"no provider is called `{name}`" if slash else f"the fallback `{fallback}` leads nowhere"
                findings.add(place, wrong, meant(name, config.providers) if slash else meant(fallback, names))
            elif isinstance(found, ModelRule) and _returns(router, found, rule.name, frozenset()):
                wrong = f"the fallback `{fallback}` leads back to `{rule.name}`"
                findings.add(place, wrong, "fallbacks go one way; `provider/model` is never caught by a pattern here")


def _returns(router: Router, rule: ModelRule, start: str, seen: frozenset[str]) -> bool:
    if rule.name == start:
        return True
    if rule.name in seen:
        return False
    onward = (router.step(fallback, fallback=True) for fallback in rule.fallbacks)
    return any(_returns(router, next_, start, seen | {rule.name}) for next_ in onward if isinstance(next_, ModelRule))
